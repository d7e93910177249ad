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

from vitrail.attack.ground_truth import GroundTruth, KnownTruth
from vitrail.attack.scene import Scene
from vitrail.attack.server_view import MODEL, ServerView, SiteAnswer
from vitrail.attack.true_images import Rows, load_truth_at
from vitrail.attack.view import SceneView
from vitrail.config import Loaded
from vitrail.data.partition.partition import SiteRows
from vitrail.engine.federation import Federation
from vitrail.engine.site_turn import Host
from vitrail.engine.storage.transcript import ReceivedUpdate
from vitrail.engine.tasks import RoundMessage, Task
from vitrail.engine.workers.make_pool import make_host
from vitrail.errors import ConfigError
from vitrail.methods.base.server import Server
from vitrail.release.defenses.private import PrivateDefense
from vitrail.release.message import digest
from vitrail.release.update import Update
from vitrail.rng import Key
from vitrail.runs.opened_run import Run

SentModel = Literal["start", "trained"]


@dataclass(frozen=True)
class RehearsalSetup:
    """How a rehearsal is set up: images in all, images a site, epochs, and which model is sent."""

    images: int = 10
    per_site: int = 1
    epochs: int = 1
    batch_size: int | None = None  # left out: all images of a site at once
    model: SentModel = "start"
    rounds: int = 4


@dataclass(frozen=True)
class Rehearsal:
    """Scenes for attackers of one round and of several, and how much noise the defense added.

    `energy` is |released - what would have left without defenses| / |change|, the mean over
    sites in the first round, over all trained numbers that left.
    """

    once: Scene
    often: Scene
    truth: GroundTruth
    energy: float

    @property
    def view(self) -> SceneView:
        """What the server of the rehearsal has."""
        return SceneView([self.once], [self.often])


def draw_rows(federation: Federation, stage: RehearsalSetup, key: Key) -> list[Rows]:
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
    run: Run, federation: Federation, rows: Sequence[Rows], stage: RehearsalSetup, key: Key
) -> Rehearsal:
    """Play some rounds of imaginary sites with the defenses of a run, and without them once."""
    loaded = _make_rehearsal_config(run, stage)
    server = ServerView(run, loaded)
    if stage.model == "trained":
        server.network.load_state_dict(run.model().network.state_dict())
        server.start = {n: t.clone() for n, t in server.network.state_dict().items()}
    sites = {
        f"imagined-{i:02d}": SiteRows(f"imagined-{i:02d}", images, np.empty(0, np.int64))
        for i, images in enumerate(rows)
    }
    imagined = replace(federation, sites=sites)
    with tempfile.TemporaryDirectory(prefix="vitrail-") as folder:
        host = make_host(server.plan, server.network, imagined, Path(folder) / "defended")
        _match_run_noise(run, federation, host)
        answers, first = _play_rounds(server, host, sites, stage.rounds)
        server.network.load_state_dict(server.start)  # the first host left its own values in it
        bare = make_host(server.plan, server.network, imagined, Path(folder) / "bare")
        bare.defenses = ()
        _, plain = _play_rounds(server, bare, sites, 1)
    truths = {
        name: load_truth_at(federation, images, key.at("others"))
        for name, images in zip(sites, rows, strict=True)
    }
    once = server.make_scene([rounds[:1] for rounds in answers], stage.per_site, "update")
    often = server.make_scene(answers, stage.per_site, "update")
    energy = _compute_noise_energy(server, first, plain)
    return Rehearsal(once, often, KnownTruth(truths), energy)


def _match_run_noise(run: Run, federation: Federation, host: Host) -> None:
    """Give the imaginary sites the noise of the run's own: that of a site of median size, in a run
    of as many rounds, however few images and rounds are rehearsed."""
    size = int(np.median([len(rows.train) for rows in federation.sites.values()]))
    for planned, defense in zip(ServerView(run).plan.defenses(), host.defenses, strict=True):
        defense.reckoned = size
        if isinstance(planned, PrivateDefense):
            noise = planned.multiplier("", size)
            defense.options = defense.options.model_copy(update={"noise": noise})


def _make_rehearsal_config(run: Run, stage: RehearsalSetup) -> Loaded:
    """The run's configuration with the rehearsal's few steps, and nothing masked: what an update
    tells is asked of one that can be seen."""
    config = run.loaded.config
    size = stage.batch_size or stage.per_site
    changed = config.run.model_copy(
        update={
            "rounds": max(config.run.rounds, stage.rounds),
            "local_epochs": stage.epochs,
            "batch_size": size,
            "device": "cpu",
        }
    )
    seen = config.release.model_copy(update={"secure_sum": False})
    return replace(run.loaded, config=config.model_copy(update={"run": changed, "release": seen}))


def _play_rounds(
    observer: ServerView, host: Host, sites: dict[str, SiteRows], count: int
) -> tuple[list[list[SiteAnswer]], list[Update]]:
    """Answers by site and round, and the updates of the first round; the mean goes on."""
    plan = observer.plan
    values = host.model.values.clone()
    answers: list[list[SiteAnswer]] = [[] for _ in sites]
    first: list[Update] = []
    roster = {name: {"examples": float(len(rows.train))} for name, rows in sites.items()}
    for round_ in range(1, count + 1):
        stage, ctx = plan.stage_at(round_), plan.context(round_, len(sites))
        server = Server(plan.layout, stage.shared, stage.arrives, values)
        server.roster = roster
        sent = {n: t.clone() for n, t in plan.method.open(server, ctx).items()}
        down = RoundMessage(round_, sent, digest({"round": round_, "stage": ctx.stage}, sent))
        total: dict[str, Tensor] = {}
        for at, name in enumerate(sites):
            update = host.turn(Task(name, round_, len(sites), evaluate=False), down).update
            images = len(sites[name].train)
            received = ReceivedUpdate(update, 1.0, None)
            answers[at].append(observer.read_answer(round_, sent, received, images))
            first += [update] if round_ == 1 else []
            for key, tensor in update.tensors.items():
                total[key] = total.get(key, torch.zeros(())) + tensor / len(sites)
        views = plan.layout.views(values)
        for name, view in views.items():
            if MODEL + name in total:
                view.copy_(total[MODEL + name])
    return answers, first


def _compute_noise_energy(
    observer: ServerView, released: Sequence[Update], plain: Sequence[Update]
) -> float:
    trained = {MODEL + spec.name for spec in observer.plan.layout.specs if spec.trainable}
    ratios = []
    for one, other in zip(released, plain, strict=True):
        noise = change = 0.0
        for name in sorted(trained & set(other.tensors)):  # a sum depends on its order
            start = observer.start[name.removeprefix(MODEL)]
            noise += float((one.tensors[name] - other.tensors[name]).double().square().sum())
            change += float((other.tensors[name] - start).double().square().sum())
        ratios.append((noise / change) ** 0.5 if change else 0.0)
    return sum(ratios) / len(ratios)
