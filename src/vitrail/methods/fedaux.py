"""FedAux: distillation on public images, each site teaching those that look like its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field as Key_
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config import schema
from vitrail.config.schema import Count, Positive
from vitrail.errors import ConfigError
from vitrail.grid_noise import add_noise, reserve_delta
from vitrail.local.evaluate import compute_features
from vitrail.local.inputs import Rows
from vitrail.local.public_score import fit_regression, score_features, sensitivity, to_unit_vectors
from vitrail.local.session import Context, Metrics, Site
from vitrail.methods.base.distillation import (
    DistillOptions,
    compute_site_logits,
    distill,
    draw_public_batches,
)
from vitrail.methods.base.method import METHODS, About, Method, RunSetup
from vitrail.methods.base.server import Server
from vitrail.methods.base.sharing_method import count_early_rounds
from vitrail.methods.base.stage import Stage
from vitrail.models.parts import PARTS
from vitrail.release.accounting import gaussian
from vitrail.release.accounting.promise import check_delta
from vitrail.release.message import ANY, KEEP, Field
from vitrail.rng import Key

WARM_UP, SCORE, TRAIN = "warm-up", "score", "train"
PUBLIC, DIRECTION = "public/features", "score/direction"
_FLOOR = 1e-3  # nobody's certainty is nothing at all


class AuxOptions(DistillOptions):
    """Those of distillation, and how sites score public images."""

    warmup: Annotated[int, Key_(ge=1)] | None = None
    """Rounds of FedAvg before scoring; left out: 3, or a third of a shorter run."""
    negatives: Count = 200
    """Public images that sites tell their own from; the others are distilled on."""
    penalty: Positive = 0.1
    """The regression's penalty; with a larger one less noise is enough."""
    epsilon: Positive = 1.0
    """The budget of a site's score for each of its images."""
    delta: Annotated[float, Key_(gt=0, lt=1)] = 1e-5
    """The delta of that budget."""


@METHODS.register("fedaux")
class FedAux(Method):
    """FedAvg first; then all sites once tell a regression between the features of their own images
    and of public ones, with the noise of (epsilon, delta) local DP; then FedDF with

        softmax(sum_k s_k(x) logits_k(x) / sum_k s_k(x)),   s_k(x) the score of site k.

    The paper's self-supervised start on public images is left out: features are those of the
    warm-up. A site that told no score counts as much as a coin.
    """

    summary = "FedDF with privately scored teachers (simplified: no self-supervised start)"
    paper = "Sattler et al. 2021, arXiv:2102.02514"
    Options = AuxOptions
    needs = "all"
    server_data = "public"

    def check_run(self, setup: RunSetup) -> None:
        """The score's delta is small beside the number of images, and there must be public images
        to distill on beside the negatives."""
        if setup.examples is not None:
            check_delta(self.options.delta, setup.examples, "method.delta")
        if setup.trainer is not None and len(setup.trainer.rows) <= self.options.negatives:
            raise ConfigError(
                f"{self.options.negatives} public images to compare with leave none of "
                f"{len(setup.trainer.rows)} to distill on",
                where="method.negatives",
                hint="Lower it, or give more public images.",
            )

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Warm-up, one round of scoring by all sites in which no model moves, training."""
        warm = count_early_rounds(self.options.warmup, 3, run.rounds, "warmup", least=1)
        still: dict[str, str] = dict.fromkeys(PARTS, "frozen")
        score = Stage(SCORE, rounds=1, sites="all", train=(TellScore(),), table=still)
        return Stage(WARM_UP, rounds=warm), score, Stage(TRAIN)

    def messages(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """Features of public images down, and a regression up, in the round of scoring."""
        if stage != SCORE:
            return (), ()
        down = Field(PUBLIC, (self.options.negatives, about.features))
        return (down,), (Field(DIRECTION, (ANY, about.features + 1), KEEP),)

    def limits(self, facts: Mapping[str, float], ctx: Context) -> dict[str, float]:
        """One regression a site."""
        del facts, ctx
        return {DIRECTION: 1.0}

    def protection(self, site: str) -> str:
        """The budget of the score."""
        del site
        return f"local DP, epsilon {self.options.epsilon:g}, delta {self.options.delta:g}"

    def open(self, server: Server, ctx: Context) -> dict[str, Tensor]:
        """The model; to be scored with, features of the negatives as well."""
        message = super().open(server, ctx)
        if ctx.stage != SCORE:
            return message
        negatives, _ = self._split_public(server, ctx)
        return {**message, PUBLIC: _compute_public_features(server, negatives)}

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean; the scores of all public images; the mean, distilled."""
        if ctx.stage == SCORE:
            _, taught = self._split_public(server, ctx)
            features = _compute_public_features(server, taught)
            for site, kept in sums.kept.items():
                for w in kept[DIRECTION]:
                    server.state[f"{SCORE}/{site}"] = score_features(features, w).float()
            return {"scored": float(len(sums.kept))}
        super().close(server, sums, ctx)
        if ctx.stage == WARM_UP:
            return {}
        _, taught = self._split_public(server, ctx)
        rows, batches = draw_public_batches(taught, self.options, ctx.key)
        at = torch.from_numpy(np.searchsorted(taught, rows))
        coin = torch.full((len(rows),), 0.5)
        scores = {s: server.state[f"{SCORE}/{s}"][at] for s in sums.models if _has_score(server, s)}
        site_logits = compute_site_logits(server, sums, rows)
        logits = weigh_logits({s: (scores.get(s, coin), site_logits[s]) for s in site_logits})
        return distill(server, rows, logits, batches, self.options)

    def _split_public(self, server: Server, ctx: Context) -> tuple[Rows, Rows]:
        """The public images to compare with and those to distill on, the same in all rounds."""
        rows = server.required_trainer.rows
        order = Key(ctx.key.root).at("negatives").numpy().permutation(len(rows))
        negatives, taught = order[: self.options.negatives], order[self.options.negatives :]
        negatives.sort()
        taught.sort()
        return rows[negatives], rows[taught]


@dataclass(frozen=True)
class TellScore:
    """Tell the site's images from public ones by a regression, and lay it out with noise."""

    name: str = SCORE
    sends: bool = True

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """The model stays as it is."""
        options = ctx.options
        site_vectors = to_unit_vectors(
            compute_features(site.model.network, site.inputs, site.rows.train).cpu()
        )
        public_vectors = to_unit_vectors(site.down[PUBLIC])
        w = fit_regression(site_vectors, public_vectors, options.penalty)
        moves = sensitivity(len(site_vectors) + len(public_vectors), options.penalty)
        sigma = gaussian.compute_sigma(options.epsilon, reserve_delta(options.delta), moves)
        direction = add_noise(w, sigma, site.noise.at(SCORE).stream()).float()[None]
        site.out = {DIRECTION: direction}
        site.lines.append(
            {
                "kind": SCORE,
                "bytes": direction.nbytes,
                "mechanism": ["logistic regression with noise on its minimizer"],
                "sigma": sigma,
                "epsilon": options.epsilon,
                "delta": options.delta,
                "adversary": "whoever sees the score and knows all other images of the site",
                "covers": "the score only; model updates: separate lines",
                "guarantee": "formal: local DP",
            }
        )
        return {}


def weigh_logits(scored: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
    """sum_k s_k(x) logits_k(x) / sum_k s_k(x) from (scores, logits) by site."""
    scores = torch.stack([s.double().clamp_min(_FLOOR) for s, _ in scored.values()])
    logits = torch.stack([site_logits.double() for _, site_logits in scored.values()])
    return ((scores[..., None] * logits).sum(0) / scores.sum(0)[:, None]).float()


def _has_score(server: Server, site: str) -> bool:
    return f"{SCORE}/{site}" in server.state


def _compute_public_features(server: Server, rows: Rows) -> Tensor:
    """What the global model's head sees of some public images."""
    trainer = server.required_trainer
    return compute_features(trainer.load(server.values).network, trainer.inputs, rows).cpu()
