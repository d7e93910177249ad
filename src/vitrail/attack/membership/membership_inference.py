"""Membership attacks on a run: the global model, or what one site sent, against real images."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.findings import Findings, MembershipResult
from vitrail.attack.job import Job
from vitrail.attack.membership.candidates import Candidates
from vitrail.attack.membership.lira import Train, infer_membership
from vitrail.attack.view import View
from vitrail.config.schema import Count, Section
from vitrail.local.evaluate import compute_logits
from vitrail.local.inputs import Feed, draw_epoch
from vitrail.local.loop import train
from vitrail.local.terms import Terms
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network
from vitrail.rng import Key, derive_server_key, seed_torch


def make_shadow_trainer(view: View, candidates: Candidates, epochs: int) -> Train:
    """Trains the run's own network from a fresh start on chosen candidates, as one site would."""
    plan, network = view.fresh_network()
    model = FlatModel(network)
    start = {name: tensor.clone() for name, tensor in model.named.items()}
    size = plan.config.run.batch_size

    def fit(chosen: Tensor, key: Key) -> Tensor:
        model.write(start)
        model.reset_counters()
        feed = Feed(candidates.inputs, candidates.rows[chosen.numpy()], key.at("views").torch())
        order = key.at("batches").torch()
        batches = (
            feed.batch(at) for _ in range(epochs) for at in draw_epoch(len(feed), size, order)
        )
        with seed_torch(key.at("dropout")):
            train(
                model,
                ((network.prefix(x), y) for x, y in batches),
                Terms(),
                plan.optimizer,
            )
        return compute_logits(network, candidates.inputs, candidates.rows)

    return fit


class MembershipOptions(Section):
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
    needs = "model"
    Options = MembershipOptions

    def run(self, view: View, job: Job) -> Findings:
        """The global model where there is one, then what each of the named sites sent."""
        results: list[MembershipResult] = []
        network = view.global_network()
        if network is not None:
            candidates = job.truth.candidates()
            results += self._infer(view, job, network, candidates, "global model")
        for site in view.sites:
            candidates, round_ = job.truth.candidates(site), view.round or view.last_round()
            network, name = view.received_network(site, round_), f"update of {site}, round {round_}"
            results += self._infer(view, job, network, candidates, name)
        return Findings(members=tuple(results))

    def _infer(
        self, view: View, job: Job, network: Network, candidates: Candidates, name: str
    ) -> list[MembershipResult]:
        """Shadow models train as long as a site did in all: `run.rounds x run.local_epochs`."""
        run, shadows = view.config.run, self.options.shadows
        epochs = self.options.epochs or max(1, run.rounds * run.local_epochs)
        return infer_membership(
            compute_logits(network, candidates.inputs, candidates.rows),
            candidates.labels,
            candidates.member,
            name,
            make_shadow_trainer(view, candidates, epochs) if shadows else None,
            shadows,
            derive_server_key(run.seed).at("membership"),
            job.tell,
        )
