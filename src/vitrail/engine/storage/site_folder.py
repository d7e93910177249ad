"""A site's own folder: its states by round, its own models, its ledger. Nobody else reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from torch import Tensor

from vitrail.engine.storage.asset_store import AssetStore
from vitrail.engine.storage.run_folder import PRIVATE_METRICS_FILE
from vitrail.errors import RunError
from vitrail.files import (
    make_folder_name,
    read_header,
    read_tensors,
    report_write_errors,
    write_tensors,
)
from vitrail.release.ledger import Ledger

OwnModelKind = Literal["personal", "local"]


class SiteFolder:
    """`sites/NAME/` of a run."""

    def __init__(self, root: Path, site: str) -> None:
        self.site = site
        self.path = root / "sites" / make_folder_name(site)
        self.assets = AssetStore(self.path / "assets")

    def ledger(self, strict: bool = True, durable: bool = False) -> Ledger:
        """The site's ledger; a durable one is on the disk before anything leaves."""
        return Ledger(self.path / "ledger.jsonl", durable, strict)

    def _state(self, round_: int) -> Path:
        return self.path / "state" / f"round-{round_:05d}.safetensors"

    def load(self, base: int) -> dict[str, Tensor]:
        """The state of an accepted round; round 0 is the empty state everybody starts with."""
        if base == 0:
            return {}
        path = self._state(base)
        if not path.exists():
            raise RunError(
                f"the state of round {base} is gone",
                where=str(path.parent),
                hint="Restore the folder `sites/` of this run, or start a new run.",
            )
        return read_tensors(path)[0]

    def save(self, round_: int, state: dict[str, Tensor], base: int = 0) -> None:
        """Keep the state this round ended with, and how many turns it was built in."""
        turns = self._count_turns(self._state(base)) + 1 if base else 1
        meta = {"site": self.site, "round": round_, "turns": turns}
        write_tensors(self._state(round_), state, meta)

    def _count_turns(self, state: Path) -> int:
        """The turns that a state was built in; 0 where nobody wrote that down, or it is gone."""
        return int(read_header(state).get("turns", 0)) if state.exists() else 0

    def note(self, round_: int, figures: Mapping[str, float | None]) -> None:
        """Add figures of a round that stay at the site; told again, the later ones count."""
        if figures:
            finite = {name: value if value == value else None for name, value in figures.items()}
            line = {"round": round_, "site": self.site, **finite}
            path = self.path / PRIVATE_METRICS_FILE
            with report_write_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a", encoding="utf-8") as handle:
                    handle.write(json.dumps(line) + "\n")

    def model_file(self, kind: OwnModelKind) -> Path:
        """Where a model of the site's own lies once it is made."""
        return self.path / f"{kind}.safetensors"

    def save_model(self, kind: OwnModelKind, tensors: Mapping[str, Tensor]) -> None:
        """Keep a whole model: its moving tensors, and what its phases found out."""
        write_tensors(self.model_file(kind), dict(tensors), {"site": self.site, "kind": kind})

    def load_model(self, kind: OwnModelKind) -> dict[str, Tensor] | None:
        """A model of the site's own, or None if there is none."""
        path = self.model_file(kind)
        return read_tensors(path)[0] if path.exists() else None

    def prune(self, floor: int) -> None:
        """Delete states that will never be asked for again. One that was built in more turns than
        the one they give way to stays: a server may tell a site to begin anew, and what its own
        model had learned until then is the site's."""
        if floor > 0 and (folder := self.path / "state").is_dir():
            new = self._state(floor)
            older = [path for path in folder.glob("round-*.safetensors") if path.name < new.name]
            turns = {path: self._count_turns(path) for path in older}
            longest = max(older, key=lambda path: (turns[path], path.name), default=new)
            if longest != new and turns[longest] > self._count_turns(new):
                older.remove(longest)
            for path in older:
                path.unlink(missing_ok=True)
