"""What a site would release if it held exactly these images: a rehearsal through the real door.

A federation's own updates mix so many images that hardly any attack tells defenses apart. Here
the run's model goes to imaginary sites of a few images each; they train and release as every
site does, defenses included, and the attacker gets what came out. The same turns without
defenses say how much noise was really added.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vitrail.attack.reading import MODEL, View
from vitrail.attack.reading import Server as Desk
from vitrail.attack.trial import Case
from vitrail.attack.truth import Rows, Truth, truth_at
from vitrail.config import Loaded
from vitrail.data.partition import SiteRows
from vitrail.engine.federation import Federation
from vitrail.engine.hire import host_of
from vitrail.engine.host import Host
from vitrail.engine.loaded import Run
from vitrail.engine.tasks import Down, Task
from vitrail.engine.transcript import Received
from vitrail.errors import ConfigError
from vitrail.methods.server import Server
from vitrail.release.message import digest
from vitrail.release.private import Private
from vitrail.release.update import Update
from vitrail.rng import Key

Which = Literal["start", "trained"]


@dataclass(frozen=True)
class Stage:
    """How a rehearsal is set up: images in all, images a site, epochs, and which model is sent."""

    images: int = 10
    per_site: int = 1
    epochs: int = 1
    batch_size: int | None = None  # left out: all images of a site at once
    model: Which = "start"
    rounds: int = 4


@dataclass(frozen=True)
class Rehearsal:
    """Cases for attackers of one round and of several, and how much noise the defense added.

    `energy` is |released - what would have left without defenses| / |change|, the mean over
    sites in the first round, over all trained numbers that left.
    """

    once: Case
    often: Case
    energy: float


def rows_for(federation: Federation, stage: Stage, key: Key) -> list[Rows]:
    """Training images of the federation, drawn from `key`, dealt out to imaginary sites."""
    everyone = np.concatenate([site.train for site in federation.sites.values()])
    if stage.images < 1 or stage.per_site < 1 or stage.images % stage.per_site:
        raise ConfigError(
            f"{stage.images} images are not sites of {stage.per_site} images each",
            where="leakage.images",
        )
    if stage.images > len(everyone):
        raise ConfigError(
            f"{stage.images} images are asked for, and the sites have {len(everyone)}",
            where="leakage.images",
        )
    drawn = key.at("images").numpy().permutation(everyone)[: stage.images]
    return [drawn[i : i + stage.per_site] for i in range(0, len(drawn), stage.per_site)]


def rehearse(
    run: Run, federation: Federation, rows: Sequence[Rows], stage: Stage, key: Key
) -> Rehearsal:
    """Play some rounds of imaginary sites with the defenses of a run, and without them once."""
    loaded = _short(run, stage)
    desk = Desk(run, loaded)
    if stage.model == "trained":
        desk.network.load_state_dict(run.model().network.state_dict())
        desk.start = {n: t.clone() for n, t in desk.network.state_dict().items()}
    sites = {
        f"imagined-{i:02d}": SiteRows(f"imagined-{i:02d}", own, np.empty(0, np.int64))
        for i, own in enumerate(rows)
    }
    imagined = replace(federation, sites=sites)
    with tempfile.TemporaryDirectory(prefix="vitrail-") as folder:
        host = host_of(desk.plan, desk.network, imagined, Path(folder) / "defended")
        _as_in(run, federation, host)
        views, first = _rounds(desk, host, sites, stage.rounds)
        desk.network.load_state_dict(desk.start)  # the first host left its own values in it
        bare = host_of(desk.plan, desk.network, imagined, Path(folder) / "bare")
        bare.defenses = ()
        _, plain = _rounds(desk, bare, sites, 1)
    truths: list[Truth] = [truth_at(federation, own, key.at("others")) for own in rows]
    once = desk.scene([own[:1] for own in views], stage.per_site, "update")
    often = desk.scene(views, stage.per_site, "update")
    energy = _energy(desk, first, plain)
    return Rehearsal(Case(once, tuple(truths)), Case(often, tuple(truths)), energy)


def _as_in(run: Run, federation: Federation, host: Host) -> None:
    """Give the imaginary sites the noise of the run's own: that of a site of median size, in a run
    of as many rounds, however few images and rounds are rehearsed."""
    size = int(np.median([len(rows.train) for rows in federation.sites.values()]))
    for own, defense in zip(Desk(run).plan.defenses(), host.defenses, strict=True):
        defense.reckoned = size
        if isinstance(own, Private):
            noise = own.multiplier("", size)
            defense.options = defense.options.model_copy(update={"noise": noise})


def _short(run: Run, stage: Stage) -> Loaded:
    """The run's configuration with the rehearsal's few steps, and nothing masked: what an update
    tells is asked of one that can be seen."""
    own = run.loaded.config
    size = stage.batch_size or stage.per_site
    changed = own.run.model_copy(
        update={
            "rounds": max(own.run.rounds, stage.rounds),
            "local_epochs": stage.epochs,
            "batch_size": size,
            "device": "cpu",
        }
    )
    seen = own.release.model_copy(update={"secure_sum": False})
    return replace(run.loaded, config=own.model_copy(update={"run": changed, "release": seen}))


def _rounds(
    desk: Desk, host: Host, sites: dict[str, SiteRows], count: int
) -> tuple[list[list[View]], list[Update]]:
    """Views by site and round, and the updates of the first round; the mean goes on."""
    plan = desk.plan
    values = host.model.values.clone()
    found: list[list[View]] = [[] for _ in sites]
    first: list[Update] = []
    roster = {name: {"examples": float(len(rows.train))} for name, rows in sites.items()}
    for round_ in range(1, count + 1):
        stage, ctx = plan.stage_at(round_), plan.context(round_, len(sites))
        server = Server(plan.layout, stage.shared, stage.arrives, values)
        server.roster = roster
        sent = {n: t.clone() for n, t in plan.method.open(server, ctx).items()}
        down = Down(round_, sent, digest({"round": round_, "stage": ctx.stage}, sent))
        total: dict[str, Tensor] = {}
        for at, name in enumerate(sites):
            update = host.turn(Task(name, round_, len(sites), evaluate=False), down).update
            images = len(sites[name].train)
            found[at].append(desk.view(round_, sent, Received(update, 1.0, None), images))
            first += [update] if round_ == 1 else []
            for key, tensor in update.tensors.items():
                total[key] = total.get(key, torch.zeros(())) + tensor / len(sites)
        views = plan.layout.views(values)
        for name, view in views.items():
            if MODEL + name in total:
                view.copy_(total[MODEL + name])
    return found, first


def _energy(desk: Desk, released: Sequence[Update], plain: Sequence[Update]) -> float:
    trained = {MODEL + spec.name for spec in desk.plan.layout.specs if spec.trainable}
    ratios = []
    for one, other in zip(released, plain, strict=True):
        noise = change = 0.0
        for name in trained & set(other.tensors):
            start = desk.start[name.removeprefix(MODEL)]
            noise += float((one.tensors[name] - other.tensors[name]).double().square().sum())
            change += float((other.tensors[name] - start).double().square().sum())
        ratios.append((noise / change) ** 0.5 if change else 0.0)
    return sum(ratios) / len(ratios)
