"""What a coordinator can audit without an image: the figures that sites told, side by side.

They say at which place of its images a class stands out at one site and nowhere else. Whether the
model learned it is for the site to find out, which has the images.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from vitrail.audit.audit_run import SEPARABILITY_FILE
from vitrail.audit.detection.contrast import Contrast, compute_contrasts
from vitrail.audit.detection.separability import Separability
from vitrail.errors import RunError
from vitrail.runs.opened_run import Run

AT_A_SITE = "Whether the model learned it, a site sees in its own folder: vitrail audit."


@dataclass(frozen=True)
class ToldContrast:
    """A class of a site and how much it stands out there, in standard errors of the difference."""

    site: str
    label: str
    contrast: Contrast

    @property
    def place(self) -> str:
        """Where, in words."""
        if self.contrast.place is None:
            return "in the whole image" if self.contrast.kind == "image-wide" else "anywhere"
        x, y = self.contrast.place
        return f"at {x:.0%} of the width, {y:.0%} of the height"

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        one = self.contrast
        return {
            "site": self.site,
            "class": self.label,
            "score": one.score,
            "kind": one.kind,
            "place": one.place,
            "here": one.here,
            "elsewhere": one.elsewhere,
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
    file = run.folder.server / SEPARABILITY_FILE
    if not file.is_file():
        return None
    tables: dict[str, Separability] = {}
    for site, raw in json.loads(file.read_text(encoding="utf-8")).items():
        try:
            table = Separability.from_json(raw)
        except (KeyError, TypeError, ValueError):
            continue
        if all(table.is_comparable(other) for other in tables.values()):
            tables[site] = table
    contrasts = [
        ToldContrast(site, run.classes[one.label], one)
        for site in tables
        for one in compute_contrasts(tables, site)
    ]
    contrasts.sort(key=lambda one: -one.contrast.score)
    silent = tuple(site for site in run.sites if site not in tables)
    return ToldFigures(tuple(contrasts), tuple(tables), silent)


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
