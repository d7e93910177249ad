"""Errors a user can act on: what is wrong, where, why, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class VitrailError(Exception):
    """One sentence for the user; the command line prints it and exits with `code`."""

    code = 2

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(self.sentence())

    def in_file(self, source: str) -> VitrailError:
        """The same error with the configuration file named before the key."""
        if not self.where.startswith(source):
            self.where = f"{source}: {self.where}" if self.where else source
            self.args = (self.sentence(),)
        return self

    def sentence(self) -> str:
        """The whole message on one line: `where: what. hint`."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.hint:
            text = f"{text.rstrip('.')}. {self.hint}"
        return " ".join(text.split())


class ConfigError(VitrailError):
    """A configuration file, a key in it or a combination of keys is wrong."""


class DataError(VitrailError):
    """Images, labels or a manifest cannot be used as they are."""


class RunError(VitrailError):
    """A run folder, a checkpoint or a running federation is not in the state it must be."""


class StoppedError(RunError):
    """A run ended early because somebody asked for it; it can be resumed."""

    code = 130


def suggest_name(word: str, valid: Iterable[str]) -> str:
    """The clause that names the closest valid word and lists them all."""
    names = sorted(valid)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    return f"{guess}Valid: {', '.join(names)}" if names else guess
