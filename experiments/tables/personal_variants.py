"""Personal models on top of a global one, their settings chosen on validation images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vitrail.local.phases.phase import Phase
from vitrail.local.phases.tune_head import Personalize
from vitrail.local.phases.tune_low_rank import TuneLowRank
from vitrail.local.phases.tune_near import TuneNear
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.personalize_sites import open_global_host, personalize_sites
from vitrail.runs.prior_shift import shift_sites
from vitrail.runs.site_logits import SiteLogits, read_site_logits
from vitrail.sweep.tune import Range, draw_settings

PRIOR, HEAD, NEAR, LOW_RANK = "prior", "head", "near", "low-rank"
CHEAP = (PRIOR, HEAD)
SETTINGS, FINALISTS = 8, 2
SEARCH: dict[str, dict[str, Range | Sequence[Any]]] = {
    PRIOR: {"temperature": Range(low=0.25, high=8.0), "smoothing": Range(low=0.01, high=1.0)},
    HEAD: {"lr": Range(low=1e-4, high=3e-2), "epochs": [5, 10, 20, 40]},
    NEAR: {
        "share": Range(low=0.03, high=1.0),
        "pull": Range(low=1e-3, high=0.3),
        "epochs": [3, 5, 10],
    },
    LOW_RANK: {"rank": [1, 2, 4, 8], "lr": Range(low=1e-4, high=3e-2), "epochs": [5, 10, 20]},
}
PHASES: dict[str, Callable[..., Phase]] = {
    HEAD: Personalize,
    NEAR: TuneNear,
    LOW_RANK: TuneLowRank,
}


class PersonalAnswers:
    """What the personal variants of one run's global model answer; the run is opened once."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.host = open_global_host(run)
        self.answers = read_site_logits(run)

    def answer(self, variant: str, setting: Mapping[str, Any]) -> SiteLogits:
        """The answers of one variant: logits under a site's class frequencies, or a tuned part."""
        if variant == PRIOR:
            return shift_sites(self.answers, **setting)
        return personalize_sites(self.run, self.host, PHASES[variant](**setting))


def score(answers: SiteLogits) -> float:
    """Accuracy over all sites' images."""
    return float((answers.logits.argmax(1) == answers.labels).mean())


def choose_personal(
    runs: Sequence[Run], variants: Sequence[str] = CHEAP
) -> dict[str, dict[str, Any]]:
    """For each variant the same search as for a row: random settings on the first run's validation
    images, the best on the others'."""
    opened = [PersonalAnswers(run) for run in runs]
    chosen = {}
    for variant in variants:
        settings = draw_settings(
            SEARCH[variant], SETTINGS, derive_server_key(0).at("personal", variant)
        )
        scores = [[score(opened[0].answer(variant, s))] for s in settings]
        best = sorted(range(len(settings)), key=lambda i: -scores[i][0])[:FINALISTS]
        for at in best:
            scores[at] += [score(other.answer(variant, settings[at])) for other in opened[1:]]
        winner = max(best, key=lambda i: sum(scores[i]) / len(scores[i]))
        chosen[variant] = {
            "setting": settings[winner],
            "trials": [{"setting": s, "scores": v} for s, v in zip(settings, scores, strict=True)],
        }
    return chosen
