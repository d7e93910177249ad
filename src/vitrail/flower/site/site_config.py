"""A site's own place: its file, its secret, what its operator agreed to, and its runs."""

from __future__ import annotations

import json
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from vitrail.config.load import Loaded, to_config_error
from vitrail.config.schema import Section
from vitrail.data.inspect.guess import guess_data
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import ConfigError
from vitrail.files import (
    load_or_create_secret,
    make_folder_name,
    report_write_errors,
    write_json,
    write_text,
)
from vitrail.flower.run_terms import Terms, digest_terms, merge_terms
from vitrail.rng import Key

_POLL_SECONDS = 0.5
_LONGEST = 4000  # characters of one entry of the log


class SiteSection(Section):
    """`[site]` of a site's file."""

    name: str
    """The site's name; its key is registered under it."""
    folder: str = "vitrail-site"
    """Where the site keeps its secret, its ledgers and its runs; relative to the file."""


class SiteFile(BaseModel):
    """A site's file: who it is, where its images lie, what its machine is like."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    site: SiteSection
    data: dict[str, Any]
    run: dict[str, Any] = {}


@dataclass(frozen=True)
class SiteConfig:
    """A site's file, read, and the folder that belongs to it."""

    file: Path
    name: str
    data: dict[str, Any]
    run: dict[str, Any]
    folder: Path

    @staticmethod
    def open(file: str | Path) -> SiteConfig:
        """Read a site's file."""
        path = Path(file)
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
            read = SiteFile.model_validate_json(json.dumps(raw, default=str), strict=True)
        except OSError as err:
            raise ConfigError(f"cannot read {path.name} ({err.strerror})", where=str(path)) from err
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
            raise ConfigError(f"this is not valid TOML ({err})", where=str(path)) from err
        except ValidationError as err:
            raise to_config_error(err, str(path), SiteFile) from None
        base = path.resolve().parent
        site = read.site
        return SiteConfig(path.resolve(), site.name, read.data, read.run, base / site.folder)

    def secret(self) -> Key:
        """The root of the site's draws: made here once, readable by nobody else, never sent."""
        return Key(load_or_create_secret(self.folder / "secret", "the site's secret"))

    def log(self, text: str) -> None:
        """Append the end of a text, with the time, to the site's own log."""
        path, stamp = self.folder / "log.txt", time.strftime("%Y-%m-%d %H:%M:%S")
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            report_write_errors(path),
            path.open("a", encoding="utf-8", errors="backslashreplace") as handle,
        ):
            handle.write(f"{stamp} {text[-_LONGEST:]}\n")

    def merge_terms(self, terms: Terms, begun: bool = False) -> Loaded:
        """The terms of a federation with this site's own data and machine."""
        return merge_terms(
            terms, self.name, self.data, self.run, self.file.parent, str(self.file), begun
        )

    def run_folder(self, run: str) -> RunFolder:
        """Where this site keeps what belongs to one run."""
        return RunFolder(self.folder / "runs" / make_folder_name(run))

    def propose(self, run: str, terms: Terms) -> None:
        """Put terms before the operator."""
        write_json(self._file(run, "proposed"), {"run": run, "terms": terms})

    def proposals(self) -> list[tuple[str, Terms]]:
        """Terms that nobody has answered yet."""
        open_terms = []
        for path in sorted((self.folder / "terms").glob("*.proposed.json")):
            raw = json.loads(path.read_text(encoding="utf-8"))
            if self.read_answer(raw["run"], raw["terms"]) is None:
                open_terms.append((raw["run"], raw["terms"]))
        return open_terms

    def decide(self, run: str, terms: Terms, yes: bool) -> None:
        """Keep the operator's answer."""
        write_json(self._file(run, "answer"), {"digest": digest_terms(terms), "yes": yes})

    def read_answer(self, run: str, terms: Terms) -> bool | None:
        """The operator's answer to exactly these terms, or None if there is none yet."""
        path = self._file(run, "answer")
        if not path.exists():
            return None
        raw = json.loads(path.read_text(encoding="utf-8"))
        return bool(raw["yes"]) if raw["digest"] == digest_terms(terms) else None

    def wait(self, run: str, terms: Terms, patience: float) -> bool:
        """Put terms before the operator and wait for the answer; no answer is a no."""
        if self.read_answer(run, terms) is None:
            self.propose(run, terms)
        deadline = time.monotonic() + patience
        while (answer := self.read_answer(run, terms)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return bool(answer)

    def _file(self, run: str, kind: str) -> Path:
        return self.folder / "terms" / f"{make_folder_name(run)}.{kind}.json"


def write_site(file: Path, name: str, images: Path) -> Path:
    """A site's file for some images; one that exists is left as it is, if it is this site's."""
    if file.exists():
        if SiteConfig.open(file).name != name:
            raise ConfigError(f"this file belongs to another site than {name!r}", where=str(file))
        return file
    data = guess_data(images.resolve()).model_dump(mode="json", exclude_defaults=True)
    tree = {"site": {"name": name, "folder": f"{make_folder_name(name)}-site"}, "data": data}
    write_text(file, tomli_w.dumps(tree))
    return file
