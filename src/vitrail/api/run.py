"""A run to ask: the words of the command line as methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from vitrail.api.given_images import GivenImages, open_given_image, predict_given
from vitrail.api.results import (
    AttackResult,
    AuditResult,
    ComparisonResult,
    EvaluationResult,
    ExplanationResult,
    LedgerResult,
    PersonalResult,
    PredictionResult,
    ReportResult,
)
from vitrail.attack import Budget
from vitrail.attack.choice import Choice
from vitrail.attack.run_attacks import run_attacks
from vitrail.audit.audit_run import audit_run
from vitrail.audit.remedy_trial import ROUNDS, try_remedies
from vitrail.config.load import parse_overrides
from vitrail.files import write_text
from vitrail.report.compose import compose
from vitrail.report.evaluation import evaluate
from vitrail.report.explain_images import Explainer
from vitrail.report.pages.audit_page import ExampleCollector
from vitrail.report.sections.attack_pictures import keep_attack
from vitrail.report.sections.audit_pictures import keep_audit
from vitrail.report.viewer import Viewer
from vitrail.runs.ledgers import read_ledgers
from vitrail.runs.opened_run import CurveSource, ModelKind
from vitrail.runs.opened_run import Run as OpenedRun
from vitrail.runs.personalize_head import personalize
from vitrail.sweep.compare_runs import compare_runs


class Run(OpenedRun):
    """A run folder opened: figures and models, and every question the command line answers."""

    def predict(
        self, images: GivenImages, site: str | None = None, overrides: Sequence[str] = ()
    ) -> PredictionResult:
        """Class probabilities of a path, a PIL image, or uint8 arrays [H, W, C] or [N, H, W, C].

        `site` chooses a site's own model; `overrides` are `data.key=value` for a path.
        """
        return PredictionResult(predict_given(self, images, site, overrides))

    def explain(
        self,
        image: GivenImages,
        site: str | None = None,
        model: ModelKind | None = None,
        classes: Sequence[str] = (),
        top: int = 5,
        against: str | None = None,
    ) -> ExplanationResult:
        """Why one image gets its prediction; `classes` are further classes to explain, `against`
        is one to tell the predicted class from."""
        explainer = Explainer(self, site, model, classes, top, against)
        return ExplanationResult(explainer, explainer(*open_given_image(self, image)))

    def audit(
        self, sites: Sequence[str] = (), lenders: Sequence[str] = (), remedy: bool | int = False
    ) -> AuditResult:
        """Which site taught the model something it should not know (left out: ask all sites).

        `remedy` tries what the readings call for, a few rounds each, or so many as it says.
        """
        album = ExampleCollector()
        audit = audit_run(self, list(sites) or None, keep=album, lenders=lenders)
        if remedy:
            rounds = ROUNDS if remedy is True else int(remedy)
            audit = replace(audit, trial=try_remedies(self, audit, rounds))
        if not sites:
            keep_audit(self, audit, album.examples)  # for the report
        return AuditResult(self, audit, album)

    def attack(
        self,
        attacks: Sequence[str] = ("ig",),
        images: int | None = None,
        sites: Sequence[str] = (),
        round_: int | None = None,
        sees: Literal["update", "sum"] = "update",
        iterations: int | None = None,
        seconds: float | None = None,
        options: Sequence[str] = (),
    ) -> AttackResult:
        """Try to get images back from what was released; needs `run.record_updates = true`.

        `options` are `attack.key=value`.
        """
        results = run_attacks(
            self,
            tuple(attacks),
            Choice(images, tuple(sites), round_, sees),
            Budget(iterations, seconds),
            options=parse_overrides(options),
        )
        keep_attack(self, results)  # for the report
        return AttackResult(results)

    def ledger(self, site: str | None = None) -> LedgerResult:
        """What left each site, or one site, and whether the sums hold."""
        return LedgerResult(read_ledgers(self.path, site))

    def personalize(
        self, site: str, epochs: int | None = None, lr: float | None = None
    ) -> PersonalResult:
        """Tune the head at one site; the global model stays as it was."""
        return PersonalResult(personalize(self, site, epochs, lr))

    def evaluate(
        self,
        data: str | Path,
        site: str | None = None,
        split: str | None = None,
        overrides: Sequence[str] = (),
    ) -> EvaluationResult:
        """Measure a model on new, labeled images: figures with intervals by patient."""
        return EvaluationResult(evaluate(self, Path(data), site, overrides, split))

    def report(
        self, out: str | Path | None = None, site: str | None = None, with_images: bool = False
    ) -> ReportResult:
        """Write one offline page that tells what happened; left out: `report.html` in the run."""
        file = Path(out) if out is not None else self.path / "report.html"
        write_text(file, compose([self.path], Viewer(site, with_images)).html)
        return ReportResult(file)

    def continue_(self, rounds: int, out: str | Path | None = None) -> Run:
        """More rounds, in a new folder; the end is that of a longer run, to the bit."""
        import vitrail

        return vitrail.extend(self.path, rounds, out)

    def __repr__(self) -> str:
        state = "finished" if self.finished else f"round {self.round} of {self.config.run.rounds}"
        return f"<Run {self.path}: {self.config.method.name}, {len(self.sites)} sites, {state}>"


def compare(
    runs: Sequence[OpenedRun | str | Path],
    figure: str = "accuracy",
    baseline: str | None = None,
    on: CurveSource = "auto",
    last: int = 1,
) -> ComparisonResult:
    """Methods side by side over seeds; runs that differ only in the seed are repeats of one row."""
    paths = [run.path if isinstance(run, OpenedRun) else Path(run) for run in runs]
    return ComparisonResult(compare_runs(paths, figure, baseline, on, last=last))
