"""A site's own place: its file, its secret, what its operator agreed to, and its runs."""

from __future__ import annotations

import fcntl
import json
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from vitrail.config.annotation_section import (
    ANNOTATIONS_FILE,
    Annotation,
    parse_annotations,
    read_annotations,
)
from vitrail.config.load import Loaded, to_config_error
from vitrail.config.section import Section
from vitrail.errors import ConfigError, RunError
from vitrail.files import (
    load_or_create_secret,
    make_folder_name,
    write_json,
    write_text,
)
from vitrail.flower.plain_text import clean_text
from vitrail.flower.site.limits import SiteLimits
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.terms_digest import Terms, digest_terms
from vitrail.log_file import LOG_FILE, append_log

if TYPE_CHECKING:  # they import torch, which the process that keeps the connection does without
    from vitrail.engine.storage.run_folder import RunFolder
    from vitrail.rng import Key

_POLL_SECONDS, _LOCK_POLL_SECONDS = 0.5, 0.1
_MOST_PROPOSALS = 3
FAREWELL_FILE = "parted"
"""The file that says the coordinator has everything it needs from this site."""
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
    limits: SiteLimits = SiteLimits()
    policy: SitePolicy = SitePolicy()


@dataclass(frozen=True)
class Proposal:
    """A run that a coordinator proposes: the digest of its terms, and what they mean here."""

    run: str
    digest: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class SiteConfig:
    """A site's file, read, and the folder that belongs to it."""

    file: Path
    name: str
    data: dict[str, Any]
    run: dict[str, Any]
    folder: Path
    limits: SiteLimits = field(default_factory=SiteLimits)
    policy: SitePolicy = field(default_factory=SitePolicy)

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
        folder = base / site.folder
        return SiteConfig(
            path.resolve(), site.name, read.data, read.run, folder, read.limits, read.policy
        )

    @contextmanager
    def hold_lock(self, patience: float = 0.0) -> Iterator[None]:
        """Nobody else answers for this site inside the block; the system lets go when it ends. One
        that is about to end is waited for, for `patience` seconds."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # whoever made it
        with (self.folder / "lock").open("w") as handle:
            deadline = time.monotonic() + patience
            while not _try_lock(handle):
                if time.monotonic() >= deadline:
                    raise RunError(
                        "another process answers for this site already",
                        where=str(self.folder),
                        hint="One `vitrail flower site` a site: end the other one first.",
                    )
                time.sleep(_LOCK_POLL_SECONDS)
            yield

    def secret(self) -> Key:
        """The root of the site's draws: made here once, readable by nobody else, never sent."""
        from vitrail.rng import Key

        return Key(load_or_create_secret(self.folder / "secret", "the site's secret"))

    @property
    def log_file(self) -> Path:
        """The site's own log."""
        return self.folder / LOG_FILE

    def log(self, text: str, **facts: Any) -> None:
        """Append the end of a text, with the time, to the site's own log; `facts` are told where
        it holds JSON lines."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [clean_text(line, _LONGEST) for line in text[-_LONGEST:].splitlines()]
        append_log(self.log_file, "\n".join(lines), **facts)

    def merge_terms(
        self, terms: Terms, begun: bool = False, drawn: Sequence[Annotation] | None = None
    ) -> Loaded:
        """The terms of a federation with this site's own data and machine, and with what was drawn
        on its images: that of its folder, or that which a run began with."""
        from vitrail.flower.run_terms import merge_terms

        data = dict(self.data)
        if drawn is None:
            in_file = parse_annotations(data.get("annotations", ()))
            drawn = (*in_file, *self.read_annotations())
        if drawn:
            data["annotations"] = [one.model_dump(mode="json") for one in drawn]
        return merge_terms(
            terms, self.name, data, self.run, self.file.parent, str(self.file), begun
        )

    def read_annotations(self) -> tuple[Annotation, ...]:
        """What was drawn on this site's images on its live pages."""
        file = self.folder / ANNOTATIONS_FILE
        return read_annotations(file) if file.is_file() else ()

    def run_folder(self, run: str) -> RunFolder:
        """Where this site keeps what belongs to one run."""
        from vitrail.engine.storage.run_folder import RunFolder

        return RunFolder(self.folder / "runs" / make_folder_name(run))

    def propose(self, run: str, terms: Terms, lines: Sequence[str]) -> None:
        """Put terms before the operator: `lines` say what they mean here."""
        waiting = [one for one in self.proposals() if one.run != run]
        if len(waiting) >= _MOST_PROPOSALS:
            raise RunError(f"{len(waiting)} other runs wait for the operator of this site")
        content = {"run": run, "digest": digest_terms(terms), "lines": list(lines)}
        write_json(self.proposal_file(run), {**content, "terms": terms})

    def proposals(self) -> list[Proposal]:
        """Terms that nobody has answered yet."""
        proposals = []
        for path in sorted((self.folder / "terms").glob("*.proposed.json")):
            raw = json.loads(path.read_text(encoding="utf-8"))
            proposal = Proposal(raw["run"], raw["digest"], tuple(raw["lines"]))
            if self.read_answer(proposal.run, proposal.digest) is None:
                proposals.append(proposal)
        return proposals

    def proposal_file(self, run: str) -> Path:
        """Where the terms of a run wait for an answer."""
        return self._file(run, "proposed")

    def decide(self, proposal: Proposal, yes: bool) -> None:
        """Keep the operator's answer."""
        write_json(self._file(proposal.run, "answer"), {"digest": proposal.digest, "yes": yes})

    def read_answer(self, run: str, digest: str) -> bool | None:
        """The operator's answer to exactly these terms, or None if there is none yet."""
        path = self._file(run, "answer")
        if not path.exists():
            return None
        raw = json.loads(path.read_text(encoding="utf-8"))
        return bool(raw["yes"]) if raw["digest"] == digest else None

    def wait(self, run: str, terms: Terms, lines: Sequence[str], patience: float) -> bool:
        """Put terms before the operator and wait for the answer; no answer is a no."""
        digest = digest_terms(terms)
        if self.read_answer(run, digest) is None:
            self.propose(run, terms, lines)
        deadline = time.monotonic() + patience
        while (yes := self.read_answer(run, digest)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return bool(yes)

    def finished_runs(self) -> list[str]:
        """The runs whose coordinator has everything it needs from this site."""
        marks = self.folder.glob(f"runs/*/server/{FAREWELL_FILE}")
        return [path.parent.parent.name for path in marks]

    def _file(self, run: str, kind: str) -> Path:
        return self.folder / "terms" / f"{make_folder_name(run)}.{kind}.json"


def _try_lock(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_site(file: Path, name: str, images: Path) -> Path:
    """A site's file for some images; one that exists is left as it is, if it is this site's."""
    if file.exists():
        if SiteConfig.open(file).name != name:
            raise ConfigError(f"this file belongs to another site than {name!r}", where=str(file))
        return file
    from vitrail.data.inspect.guess import guess_data

    data = guess_data(images.resolve()).model_dump(mode="json", exclude_defaults=True)
    tree = {"site": {"name": name, "folder": f"{make_folder_name(name)}-site"}, "data": data}
    write_text(file, tomli_w.dumps(tree))
    return file
