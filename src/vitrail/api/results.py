"""What each question to a run comes to."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vitrail.api.result import NO_DIAGNOSIS, Result, Row
from vitrail.attack.run_attacks import AttackResults
from vitrail.audit.federation_view import Audit
from vitrail.files import write_bytes, write_text
from vitrail.report.evaluation import Evaluation
from vitrail.report.explain_images import Explainer, ImageExplanation
from vitrail.report.figures.evidence_picture import draw_evidence
from vitrail.report.html import Html, el
from vitrail.report.pages.attack_page import render_attack_page
from vitrail.report.pages.audit_page import ExampleCollector, render_audit_page
from vitrail.report.pages.evidence_page import render_evidence_page
from vitrail.runs.ledgers import Ledgers
from vitrail.runs.opened_run import Run as OpenedRun
from vitrail.runs.personalize_head import PersonalizationResult
from vitrail.runs.predict_images import Predictions
from vitrail.sweep.compare_runs import Comparison

TABLES = (".csv", ".json", ".parquet")


@dataclass(frozen=True, repr=False)
class PredictionResult(Result):
    """Class probabilities of images. `predictions` is what they were made from."""

    predictions: Predictions
    title: ClassVar[str] = "prediction"
    caution: ClassVar[str] = NO_DIAGNOSIS

    def rows(self) -> list[Row]:
        """One row an image: path, prediction, a probability a class, error."""
        p = self.predictions
        return [
            {
                "path": name,
                "prediction": label,
                **{c: None if error else float(v) for c, v in zip(p.classes, values, strict=True)},
                "error": error,
            }
            for name, label, values, error in zip(p.names, p.labels, p.probabilities, p.errors)
        ]


@dataclass(frozen=True, repr=False)
class ExplanationResult(Result):
    """Why one image got its prediction: parts whose contributions add up to the logit."""

    explainer: Explainer
    explanation: ImageExplanation
    title: ClassVar[str] = "explanation"
    caution: ClassVar[str] = NO_DIAGNOSIS
    forms: ClassVar[tuple[str, ...]] = (".png", ".html", *TABLES)

    @property
    def prediction(self) -> str:
        """The predicted class."""
        return self.explanation.classes[self.explanation.predicted]

    @property
    def probability(self) -> float:
        """That of the predicted class."""
        return self.explanation.probabilities[self.explanation.predicted]

    def rows(self) -> list[Row]:
        """One row a contribution, class by class."""
        return [
            {"class": one["class"], "logit": one["logit"], **contribution}
            for one in self.explanation.to_json()
            for contribution in one["contributions"]
        ]

    def to_json(self) -> Any:
        """The evidence, as `vitrail explain --out FILE.json` writes it."""
        return self.explanation.to_json()

    def to_png(self) -> bytes:
        """The picture."""
        return draw_evidence(self.explainer, self.explanation)

    def _picture(self) -> Html:
        text = base64.b64encode(self.to_png()).decode()
        alt = f"{self.prediction}, {self.probability:.1%}: the parts it rests on"
        return el("img", src=f"data:image/png;base64,{text}", alt=alt, style="max-width:100%")

    def _write(self, path: Path, form: str) -> None:
        if form == ".png":
            write_bytes(path, self.to_png())
        elif form == ".html":
            write_text(path, render_evidence_page(self.explainer, [self.explanation], []))
        else:
            super()._write(path, form)


@dataclass(frozen=True, repr=False)
class AuditResult(Result):
    """Which site taught the model something it should not know."""

    run: OpenedRun
    audit: Audit
    examples: ExampleCollector
    title: ClassVar[str] = "audit"
    forms: ClassVar[tuple[str, ...]] = (".html", *TABLES)

    @property
    def origin(self) -> str | None:
        """The site that the strongest finding comes from; None if none is biased."""
        return self.audit.origin

    def rows(self) -> list[Row]:
        """One row a site and class: score, p-value, verdict, box."""
        return [
            {"site": site["site"], **finding}
            for site in self.audit.to_json()["sites"]
            for finding in site["classes"]
        ]

    def to_json(self) -> Any:
        """All of it, as `vitrail audit --json` writes it."""
        return self.audit.to_json()

    def _write(self, path: Path, form: str) -> None:
        if form == ".html":
            shown = bool(self.run.card.get("public"))
            page = render_audit_page(self.run, self.audit, self.examples.examples, shown)
            write_text(path, page)
        else:
            super()._write(path, form)


@dataclass(frozen=True, repr=False)
class AttackResult(Result):
    """What a curious server gets out of what the run released."""

    results: AttackResults
    title: ClassVar[str] = "attack"
    forms: ClassVar[tuple[str, ...]] = (".html", *TABLES)

    def rows(self) -> list[Row]:
        """One row an attack, without pixels."""
        return [row.to_json() for row in self.results.rows]

    def to_json(self) -> Any:
        """All numbers, as `vitrail attack --json` writes them."""
        return self.results.to_json()

    def _write(self, path: Path, form: str) -> None:
        if form == ".html":
            write_text(path, render_attack_page(self.results))
        else:
            super()._write(path, form)


@dataclass(frozen=True, repr=False)
class LedgerResult(Result):
    """What left each site. `mismatches` is empty where every sum holds."""

    ledgers: Ledgers
    title: ClassVar[str] = "ledger"

    @property
    def mismatches(self) -> tuple[str, ...]:
        """What does not agree between sites, server and accountant."""
        return tuple(self.ledgers.mismatches)

    def rows(self) -> list[Row]:
        """One row a line of a ledger."""
        return [
            {"site": site.site, **dict(line)} for site in self.ledgers.sites for line in site.lines
        ]

    def to_json(self) -> Any:
        """All of it, as `vitrail ledger --json` writes it."""
        return self.ledgers.to_json()


@dataclass(frozen=True, repr=False)
class EvaluationResult(Result):
    """A model on images it has not seen."""

    evaluation: Evaluation
    title: ClassVar[str] = "evaluation"
    caution: ClassVar[str] = NO_DIAGNOSIS

    def __getitem__(self, figure: str) -> float | None:
        return self.evaluation.figures[figure].value

    def rows(self) -> list[Row]:
        """One row a figure with its interval."""
        return [
            {"figure": name, "value": one.value, "low": one.low, "high": one.high}
            for name, one in self.evaluation.figures.items()
        ]

    def to_json(self) -> Any:
        """All of it, as `vitrail evaluate --json` writes it."""
        return self.evaluation.to_json()


@dataclass(frozen=True, repr=False)
class PersonalResult(Result):
    """A site's own head: figures on its test images before and after."""

    tuned: PersonalizationResult
    title: ClassVar[str] = "personalization"

    def rows(self) -> list[Row]:
        """One row a figure."""
        names = [name for name in self.tuned.after if name in self.tuned.before]
        before, after = self.tuned.before, self.tuned.after
        return [{"figure": n, "global": before[n], "personal": after[n]} for n in names]


@dataclass(frozen=True, repr=False)
class ReportResult(Result):
    """A report that was written: `path` is the file."""

    path: Path
    title: ClassVar[str] = "report"
    forms: ClassVar[tuple[str, ...]] = (".html",)

    def rows(self) -> list[Row]:
        """One row: the file and its size."""
        return [{"file": str(self.path), "bytes": self.path.stat().st_size}]

    def _picture(self) -> Html:
        return el("p", el("a", "open the report", href=str(self.path), target="_blank"))

    def _write(self, path: Path, form: str) -> None:
        del form
        write_text(path, self.path.read_text(encoding="utf-8"))


@dataclass(frozen=True, repr=False)
class ComparisonResult(Result):
    """Methods side by side: one table a setting."""

    tables: Sequence[Comparison]
    title: ClassVar[str] = "comparison"

    def rows(self) -> list[Row]:
        """One row a method and setting."""
        return [{"setting": t.setting, **vars(row)} for t in self.tables for row in t.rows]
