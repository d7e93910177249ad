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
from vitrail.local.evaluate import seen
from vitrail.local.inputs import Rows
from vitrail.local.score import certainty, regression, sensitivity, unit
from vitrail.local.session import Context, Metrics, Site
from vitrail.methods.bench import Bench
from vitrail.methods.distill import DistillOptions, distill, drawn, opinions
from vitrail.methods.method import METHODS, About, Method
from vitrail.methods.server import Server
from vitrail.methods.shared_images import early_rounds
from vitrail.methods.stage import Stage
from vitrail.models.parts import PARTS
from vitrail.release import gaussian
from vitrail.release.message import ANY, KEEP, Field
from vitrail.release.promise import check_delta
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
    at_server = True
    public = True

    def check_sites(self, examples: Mapping[str, int], everybody: bool) -> None:
        """The score's delta is small beside the number of images."""
        del everybody
        check_delta(self.options.delta, examples, "method.delta")

    def check_bench(self, bench: Bench) -> None:
        """There must be images to distill on beside the negatives."""
        if len(bench.rows) <= self.options.negatives:
            raise ConfigError(
                f"{self.options.negatives} public images to compare with leave none of "
                f"{len(bench.rows)} to distill on",
                where="method.negatives",
                hint="Lower it, or give more public images.",
            )

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Warm-up, one round of scoring by all sites in which no model moves, training."""
        warm = early_rounds(self.options.warmup, 3, run.rounds, "warmup", least=1)
        still: dict[str, str] = dict.fromkeys(PARTS, "frozen")
        score = Stage(SCORE, rounds=1, sites="all", train=(TellScore(),), table=still)
        return Stage(WARM_UP, rounds=warm), score, Stage(TRAIN)

    def beside(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
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
        found = super().open(server, ctx)
        if ctx.stage != SCORE:
            return found
        negatives, _ = self._parted(server, ctx)
        return {**found, PUBLIC: _features(server, negatives)}

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean; the scores of all public images; the mean, distilled."""
        if ctx.stage == SCORE:
            _, taught = self._parted(server, ctx)
            features = _features(server, taught)
            for site, kept in sums.kept.items():
                for w in kept[DIRECTION]:
                    server.state[f"{SCORE}/{site}"] = certainty(features, w).float()
            return {"scored": float(len(sums.kept))}
        super().close(server, sums, ctx)
        if ctx.stage == WARM_UP:
            return {}
        _, taught = self._parted(server, ctx)
        rows, batches = drawn(taught, self.options, ctx.key)
        at = torch.from_numpy(np.searchsorted(taught, rows))
        coin = torch.full((len(rows),), 0.5)
        scores = {s: server.state[f"{SCORE}/{s}"][at] for s in sums.models if _told(server, s)}
        said = opinions(server, sums, rows)
        logits = weighed({s: (scores.get(s, coin), said[s]) for s in said})
        return distill(server, rows, logits, batches, self.options)

    def _parted(self, server: Server, ctx: Context) -> tuple[Rows, Rows]:
        """The public images to compare with and those to distill on, the same in all rounds."""
        rows = server.workplace.rows
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
        own = unit(seen(site.model.network, site.inputs, site.rows.train).cpu())
        other = unit(site.down[PUBLIC])
        w = regression(own, other, options.penalty)
        moves = sensitivity(len(own) + len(other), options.penalty)
        sigma = gaussian.sigma(options.epsilon, options.delta, moves)
        noise = site.noise.at(SCORE).stream().normal(w.shape, torch.float64)
        found = (w + sigma * noise).float()[None]
        site.out = {DIRECTION: found}
        site.lines.append(
            {
                "kind": SCORE,
                "bytes": found.nbytes,
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


def weighed(judged: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
    """sum_k s_k(x) logits_k(x) / sum_k s_k(x) from (scores, logits) by site."""
    scores = torch.stack([s.double().clamp_min(_FLOOR) for s, _ in judged.values()])
    logits = torch.stack([said.double() for _, said in judged.values()])
    return ((scores[..., None] * logits).sum(0) / scores.sum(0)[:, None]).float()


def _told(server: Server, site: str) -> bool:
    return f"{SCORE}/{site}" in server.state


def _features(server: Server, rows: Rows) -> Tensor:
    """What the global model's head sees of some public images."""
    bench = server.workplace
    return seen(bench.load(server.values).network, bench.inputs, rows).cpu()
