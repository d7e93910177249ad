"""Progress in a notebook: one line that is written anew after each round."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from vitrail.report.html import el


def make_notebook_progress() -> Callable[[Any], None] | None:
    """What hears of rounds where IPython shows cells; None elsewhere."""
    shell = sys.modules.get("IPython")
    if shell is None or shell.get_ipython() is None:
        return None
    display = shell.display.display
    handle = display(_Line("starting"), display_id=True)

    def tell(progress: Any) -> None:
        if handle is not None:
            handle.update(_Line(describe_progress(progress)))

    return tell


def describe_progress(progress: Any) -> str:
    """One round in a line."""
    if progress.note and progress.note != "closing":
        return str(progress.note)
    accuracy = "" if progress.accuracy is None else f", accuracy {progress.accuracy:.3f}"
    return f"round {progress.round} of {progress.rounds}{accuracy}, {progress.sites} sites"


class _Line:
    """Some text, as a cell shows it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return str(el("pre", self.text))
