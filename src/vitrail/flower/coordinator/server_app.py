"""The coordinator as a Flower ServerApp."""

from __future__ import annotations

import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from vitrail.config import load
from vitrail.engine.run import Progress
from vitrail.errors import VitrailError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.coordinator.grid_link import GridLink

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the run that the app's configuration names; an error is one sentence in its log."""
    asked = context.run_config
    try:
        run_federation(
            GridLink(grid, insecure=bool(asked["insecure"])),
            load(str(asked["config"])),
            str(asked["out"]),
            sites=int(asked["sites"]),
            timeout=float(asked["timeout"]),
            patience=float(asked["patience"]),
            on_round=tell,
        )
    except VitrailError as err:
        print(f"vitrail: {err}", file=sys.stderr, flush=True)
        raise SystemExit(err.code) from None


def tell(p: Progress) -> None:
    """One line a round."""
    if p.note and p.note != "closing":
        return
    head = "final" if p.note else f"round {p.round}/{p.rounds}"
    figures = "" if p.accuracy is None else f"  accuracy {p.accuracy:.3f}"
    away = f"  without {p.dropped}" if p.dropped else ""
    refused = f"  refused {p.refused}" if p.refused else ""
    print(f"vitrail: {head}{figures}  sites {p.sites}{away}{refused}", flush=True)
