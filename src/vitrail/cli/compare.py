"""`vitrail compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vitrail.cli.grids import show_comparison
from vitrail.metrics.method_tests import Alternative
from vitrail.sweep.compare_runs import ComparisonConfig


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders.")],
    figure: Annotated[
        str, typer.Option("--figure", help="accuracy, balanced_accuracy, auroc, loss, ...")
    ] = "accuracy",
    baseline: Annotated[str | None, typer.Option(help="The row others are compared with.")] = None,
    on: Annotated[
        Literal["auto", "server", "sites"],
        typer.Option(help="Whose test images: the server's or the sites' own."),
    ] = "auto",
    alternative: Annotated[
        Alternative, typer.Option(help="Two-sided tests, or whether a row is greater or less.")
    ] = "two-sided",
    last: Annotated[
        int, typer.Option(min=1, help="A run's figure is the mean of so many last evaluations.")
    ] = 1,
    until: Annotated[
        int | None, typer.Option(min=1, help="Compare as if every run had ended after this round.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for tables and curves.")
    ] = None,
) -> None:
    """Methods side by side over seeds: mean, SD, test, Holm correction, effect size."""
    comparison = ComparisonConfig(
        figure=figure, baseline=baseline, alternative=alternative, last=last, until=until
    )
    show_comparison(runs, comparison, on, out)
