"""Membership attacks on a run: the global model, or what one site sent, against real images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.budget import Tell, quiet
from vitrail.attack.membership import Membership, Train, alike, membership
from vitrail.attack.reading import Server, check_seen
from vitrail.attack.truth import Rows
from vitrail.config.schema import Count, Table
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import Federation
from vitrail.engine.loaded import Run
from vitrail.engine.plan import make_plan
from vitrail.engine.reference import images_of
from vitrail.engine.transcript import Recording
from vitrail.errors import RunError
from vitrail.local.evaluate import logits_of
from vitrail.local.inputs import Feed, Inputs, epoch
from vitrail.local.loop import train
from vitrail.local.terms import Terms
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network
from vitrail.rng import Key, scope, server

_MOST = 400  # candidates of each kind


@dataclass(frozen=True)
class Candidates:
    """Images of which an attacker asks whether they were trained on, and the answers."""

    inputs: Inputs
    rows: Rows
    member: Tensor  # [N] bool

    @property
    def labels(self) -> Tensor:
        """Their labels."""
        return self.inputs.targets(self.rows)


def candidates(run: Run, federation: Federation, site: str | None, key: Key) -> Candidates:
    """Training images of a site (or of all) and as many test images that nobody trained on, of each
    class the same number."""
    sites = federation.sites
    if site is not None and site not in sites:
        raise RunError(f"there is no site {site!r} in this run", where="--site")
    trained = np.concatenate(
        [s.train for s in sites.values()] if site is None else [sites[site].train]
    )
    tested = np.concatenate([*(s.test for s in sites.values()), federation.server_test])
    if not len(tested):
        raise RunError(
            "this run held no image back, so that there is nobody but members",
            where=str(run.path),
            hint="Set partition.test_fraction, or use data with a test split.",
        )
    draw = key.at("candidates").numpy()
    labels = torch.from_numpy(federation.images.labels.astype(np.int64))
    trained, tested = draw.permutation(trained), draw.permutation(tested)
    mine, others = alike(labels[trained], labels[tested])
    if not len(mine):
        raise RunError(
            "no test image is of a class that was trained on, so that classes would tell",
            where=str(run.path),
            hint="Attack another site, or raise partition.test_fraction.",
        )
    some = draw.permutation(len(mine))[:_MOST]
    count = len(some)
    rows = np.concatenate([trained[mine.numpy()[some]], tested[others.numpy()[some]]])
    inputs = Inputs(
        images=federation.images.images,
        labels=federation.images.labels,
        normalize=Normalize.of(run.config, int(run.card["channels"])),
    )
    return Candidates(inputs, rows, torch.arange(2 * count) < count)


def shadow_trainer(run: Run, given: Candidates, epochs: int) -> Train:
    """Trains the run's own network from a fresh start on chosen candidates, as one site would."""
    made = make_plan(run.loaded, run.classes, run.card["channels"])
    plan, network = made
    run.fill_start(network)
    model = FlatModel(network)
    start = {name: tensor.clone() for name, tensor in model.named.items()}
    size = plan.config.run.batch_size

    def fit(chosen: Tensor, key: Key) -> Tensor:
        model.write(start)
        model.reset_counters()
        feed = Feed(given.inputs, given.rows[chosen.numpy()], key.at("views").torch())
        order = key.at("batches").torch()
        batches = (feed.batch(at) for _ in range(epochs) for at in epoch(len(feed), size, order))
        with scope(key.at("dropout")):
            train(
                model,
                ((network.prefix(x), y) for x, y in batches),
                Terms(),
                plan.optimizer,
            )
        return logits_of(network, given.inputs, given.rows)

    return fit


def members_of(
    run: Run,
    sites: Sequence[str] = (),
    shadows: int = 8,
    epochs: int | None = None,
    round_: int | None = None,
    tell: Tell = quiet,
) -> list[Membership]:
    """Loss threshold and LiRA on the global model; with `sites`, on what each of them sent.

    Shadow models train as long as a site did in all: `run.rounds x run.local_epochs`.
    """
    key = server(run.config.run.seed).at("membership")
    federation = images_of(run)
    length = epochs or max(1, run.config.run.rounds * run.config.run.local_epochs)
    found: list[Membership] = []
    if not sites:
        given = candidates(run, federation, None, key)
        logits = logits_of(run.model().network, given.inputs, given.rows)
        fit = shadow_trainer(run, given, length) if shadows else None
        found += membership(
            logits, given.labels, given.member, "global model", fit, shadows, key, tell
        )
    tape = Recording(run.folder.server) if sites else None
    for site in sites:
        assert tape is not None
        given = candidates(run, federation, site, key)
        at = round_ or tape.rounds()[-1]
        network = _received(run, tape, at, site)
        logits = logits_of(network, given.inputs, given.rows)
        fit = shadow_trainer(run, given, length) if shadows else None
        name = f"update of {site}, round {at}"
        found += membership(logits, given.labels, given.member, name, fit, shadows, key, tell)
    return found


class MembershipOptions(Table):
    """`[attack.membership]`."""

    shadows: Annotated[int, Field(ge=0)] = 8
    """Shadow models for LiRA, an even number; 0: the loss threshold alone."""
    epochs: Count | None = None
    """Epochs of a shadow model; left out: rounds times local epochs."""


@ATTACKS.register("membership")
class MembershipInference(Attack):
    """Who was trained on: the global model's candidates, and each named site's update's."""

    summary = "loss threshold and LiRA: was an image among those trained on?"
    paper = "Carlini et al. 2022, arXiv:2112.03570"
    kind = "members"
    Options = MembershipOptions

    def find(
        self, run: Run, sites: Sequence[str], round_: int | None, tell: Tell
    ) -> list[Membership]:
        """The global model where there is one, then what each of the sites sent."""
        shadows, epochs = self.options.shadows, self.options.epochs
        found = [] if run.keeps_home else members_of(run, (), shadows, epochs, tell=tell)
        if sites:
            found += members_of(run, sites, shadows, epochs, round_, tell)
        return found


def _received(run: Run, tape: Recording, round_: int, site: str) -> Network:
    """The network as a site sent it."""
    desk = Server(run)
    check_seen(desk.plan, (site,))
    told = desk.whole({**tape.sent(round_), **tape.received(round_, site).update.tensors})
    desk.network.load_state_dict(told)
    return desk.network
