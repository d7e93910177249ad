"""What a coordinator can audit without an image: the figures that sites told, side by side.

They say in what a class stands apart at one site from the same class elsewhere, and how surely.
Whether the model learned it is for the site to find out, which has the images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vitrail.audit.audit_tables import compare_tables, read_tables
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.feature_layout import Unit
from vitrail.errors import RunError
from vitrail.runs.opened_run import Run

AT_A_SITE = "Whether the model learned it, a site sees in its own folder: vitrail audit."


@dataclass(frozen=True)
class ToldContrast:
    """A class of a site and how far it lies from the same class elsewhere."""

    site: str
    label: str
    contrast: Contrast
    unit: Unit

    @property
    def place(self) -> str:
        """Where, in words."""
        if self.unit.box is None:
            where = "in the whole image" if self.unit.kind == "image-wide" else "anywhere"
            return f"{where} ({self.unit.family})"
        x0, y0, x1, y1 = self.unit.box
        return f"at {(x0 + x1) / 2:.0%} of the width, {(y0 + y1) / 2:.0%} of the height"

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        one = self.contrast
        return {
            "site": self.site,
            "class": self.label,
            "score": one.score,
            "p_value": one.p_value,
            "verdict": one.verdict,
            "kind": self.unit.kind,
            "family": self.unit.family,
            "place": self.unit.box,
            "effect": one.effect,
            "limit": one.limit if np.isfinite(one.limit) else None,
        }


@dataclass(frozen=True)
class ToldFigures:
    """All contrasts of a federation, the largest first, and who told nothing that compares."""

    contrasts: tuple[ToldContrast, ...]
    told: tuple[str, ...]
    silent: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        rows = [one.to_json() for one in self.contrasts]
        return {"end": "coordinator", "told": self.told, "silent": self.silent, "contrasts": rows}


def read_told_figures(run: Run) -> ToldFigures | None:
    """What the sites of a federation told for its audit; None where none was to be told."""
    tables = read_tables(run)
    if tables is None:
        return None
    contrasts = [
        ToldContrast(one.site, run.classes[one.label], one, one.find_unit(tables.units))
        for one in compare_tables(run, tables)
    ]
    told = tuple(tables.exchange.summaries)
    silent = tuple(site for site in run.sites if site not in told)
    return ToldFigures(tuple(contrasts), told, silent)


def require_told_figures(run: Run) -> ToldFigures:
    """The same, or one sentence that says why there are none."""
    figures = read_told_figures(run) if run.finished else None
    if figures is None:
        why = (
            "they are told at the end of the run"
            if not run.finished
            else "its terms did not ask for them, or a formal mechanism forbids them"
        )
        raise RunError(
            f"no site told this coordinator figures for an audit: {why}",
            where=str(run.path),
            hint="Each site can audit its own folder of the run where it has such figures.",
        )
    return figures
