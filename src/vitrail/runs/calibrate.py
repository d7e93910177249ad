"""How sure a model may be: its temperature, from images it was not trained on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.engine.federation import Federation
from vitrail.metrics.classification import compute_detailed_metrics
from vitrail.metrics.temperature import apply_temperature, fit_temperature
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.runs.predict_images import predict_logits
from vitrail.runs.reopen import load_run_federation

_FEWEST, _MOST = 20, 256  # images that a temperature is fitted to


@dataclass(frozen=True)
class Calibration:
    """A temperature, the images it comes from, and the calibration error without and with it."""

    temperature: float
    images: int
    source: str
    ece_before: float | None
    ece_after: float | None

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def calibrate(
    run: Run, model: DeployedModel, site: str | None, federation: Federation | None = None
) -> Calibration | None:
    """Fit it to the site's test images, else to the server's or, if public, to everybody's.

    None where too few of them can be read. The errors are of the same images, so the second one
    is a little too good.
    """
    federation = federation or load_run_federation(run)
    rows, source = _choose_rows(run, federation, site)
    if len(rows) < _FEWEST:
        return None
    if len(rows) > _MOST:
        rows = rows[np.linspace(0, len(rows) - 1, _MOST).round().astype(np.int64)]
    logits = predict_logits(model, np.stack([federation.images.images[row] for row in rows]))
    labels = federation.images.labels[rows]
    scores = logits.double().numpy()
    temperature = fit_temperature(scores, labels)
    before, after = (
        compute_detailed_metrics(apply_temperature(scores, t), labels, len(model.classes))["ece"]
        for t in (1.0, temperature)
    )
    return Calibration(temperature, len(rows), source, before, after)


def _choose_rows(
    run: Run, federation: Federation, site: str | None
) -> tuple[npt.NDArray[np.int64], str]:
    if site is not None and site in federation.sites:
        return federation.sites[site].test, f"test images of {site}"
    if len(federation.server_test) or not run.card.get("public"):
        return federation.server_test, "test images of the server"
    tests = [rows.test for rows in federation.sites.values()]
    return np.concatenate(tests), "test images of all sites"
