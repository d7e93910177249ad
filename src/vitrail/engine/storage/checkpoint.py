"""Checkpoints: the server after a round, in one file that is whole or not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vitrail.engine.plan import Plan
from vitrail.engine.site_versions import Versions
from vitrail.engine.storage.asset_store import AssetStore
from vitrail.errors import RunError
from vitrail.files import read_tensors, write_tensors
from vitrail.methods.base.server import Server
from vitrail.models.network import Network

KEEP = 3
SUMS = "sums"  # under which a checkpoint says that no sum with noise was sent that it lacks


@dataclass(frozen=True)
class Identity:
    """What must not change between a run and its resume."""

    config: str
    data: str
    weights: str
    public: str = ""  # the server's own images


class Checkpoints:
    """`server/checkpoints/` of a run, and the tensors it began with that stand beside it once."""

    def __init__(self, server: Path) -> None:
        self.folder = server / "checkpoints"
        self.frozen_file = server / "frozen.safetensors"
        self.start_file = server / "start.safetensors"
        self.assets = AssetStore(server / "assets")

    def path(self, round_: int) -> Path:
        """The file of one round."""
        return self.folder / f"round-{round_:05d}.safetensors"

    def rounds(self) -> list[int]:
        """The rounds that have a file, in order."""
        return sorted(
            int(p.stem.removeprefix("round-")) for p in self.folder.glob("round-*.safetensors")
        )

    def save(self, server: Server, versions: Versions, round_: int, identity: Identity) -> None:
        """Write the server after a round; then drop all but the newest few."""
        model = {f"model/{n}": t for n, t in server.layout.views(server.values).items()}
        state = {f"state/{n}": t for n, t in server.state.items()}
        meta = {
            "round": round_,
            "roster": server.roster,
            "accepted": versions.accepted,
            "assets": {name: asset.digest for name, asset in server.assets.items()},
            "holds": versions.holds,
            SUMS: "sent after their checkpoint",
            **asdict(identity),
        }
        write_tensors(self.path(round_), {**model, **state}, meta)
        versions.durable = dict(versions.accepted)
        for old in self.rounds()[:-KEEP]:
            self.path(old).unlink(missing_ok=True)

    def save_frozen(self, network: Network, plan: Plan) -> None:
        """Write what never changes, once, so that a run can be used without its weights file.

        So is the start of a backbone that trains, where a seed does not give it.
        """
        moving = {spec.name for spec in plan.layout.specs}
        tensors = network.state_dict()
        still = {n: t for n, t in tensors.items() if n not in moving}
        write_tensors(self.frozen_file, still, dict(plan.card))
        warm = "start" in plan.card
        start = {n: tensors[n] for n in sorted(moving) if warm or n.startswith("backbone.")}
        if start and (warm or "digest" in plan.card):
            write_tensors(self.start_file, start, dict(plan.card))

    def newest(self) -> int | None:
        """The last round that is on disk, or None."""
        rounds = self.rounds()
        return rounds[-1] if rounds else None

    def load(self, server: Server, versions: Versions, identity: Identity | None) -> int:
        """Put the newest checkpoint into the server; returns its round."""
        newest = self.newest()
        if newest is None:
            raise RunError("there is no checkpoint to go on from", where=str(self.folder))
        tensors, meta = read_tensors(self.path(newest))
        if identity is not None:
            self._check(meta, identity)
        views = server.layout.views(server.values)
        for name, tensor in views.items():
            tensor.copy_(tensors[f"model/{name}"])
        server.state = {
            n.removeprefix("state/"): t for n, t in tensors.items() if n.startswith("state/")
        }
        server.roster = {site: dict(facts) for site, facts in meta["roster"].items()}
        versions.accepted = {site: int(r) for site, r in meta["accepted"].items()}
        versions.durable = dict(versions.accepted)
        server.assets = {n: self.assets.get(d) for n, d in meta.get("assets", {}).items()}
        versions.holds = {site: list(held) for site, held in meta.get("holds", {}).items()}
        return int(meta["round"])

    def check_sums(self, round_: int) -> None:
        """Refuse to go on from a checkpoint of an older version where sums have the server's noise:
        rounds after it may have been sent, and would be added up again under fresh noise."""
        _, meta = read_tensors(self.path(round_))
        if SUMS not in meta:
            raise RunError(
                "this run was begun by an older version, which sent sums with noise before their "
                "checkpoint: added up again they would get other noise, and two noises on one sum "
                "hide less than one",
                where=str(self.folder.parent.parent),
                hint="Start a new run from this one's model (model.start).",
            )

    def same_images(self, round_: int, now: str) -> bool:
        """Whether the sites' images are those of the run; older runs put public ones behind."""
        _, meta = read_tensors(self.path(round_))
        then = str(meta["data"])
        return then == now if "public" in meta else then.startswith(now)

    def _check(self, meta: Mapping[str, Any], now: Identity) -> None:
        if "public" not in meta:  # an older run: one digest behind the other
            meta = {**meta, "public": ""}
            now = replace(now, data=now.data + now.public, public="")
        for name, value in asdict(now).items():
            self._check_same("public images" if name == "public" else name, meta[name], value)

    def check_config(self, now: str) -> None:
        """Refuse a run whose configuration is no longer the one it was made with."""
        newest = self.newest()
        if newest is not None:
            self._check_same("config", read_tensors(self.path(newest))[1]["config"], now)

    def _check_same(self, name: str, then: str, now: str) -> None:
        if then != now:
            raise RunError(
                f"the {name} of this run changed since it was started",
                where=str(self.folder.parent.parent),
                hint="Put it back as it was, or start a new run.",
            )

    def load_frozen(self) -> dict[str, torch.Tensor]:
        """The tensors that never change."""
        return read_tensors(self.frozen_file)[0]

    def load_start(self) -> dict[str, torch.Tensor] | None:
        """The moving tensors that came from elsewhere, as they were before the first round."""
        return read_tensors(self.start_file)[0] if self.start_file.exists() else None
