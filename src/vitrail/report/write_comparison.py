"""Runs side by side as files: Markdown, CSV and curves."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from vitrail.files import write_text
from vitrail.metrics.method_tests import Row, table_markdown
from vitrail.report.figures.curves import draw_curves
from vitrail.sweep.compare_runs import Comparison


def write_comparison(tables: Iterable[Comparison], folder: Path) -> list[Path]:
    """Each table as Markdown and CSV, and its curves as PNG."""
    written = []
    for number, table in enumerate(tables, start=1):
        stem = f"compare-{number}-{table.figure}"
        title = table.setting or "all runs"
        text = f"{title}\n\n{table_markdown(table.rows)}\n" + "".join(
            f"\n{note}" for note in table.notes
        )
        write_text(folder / f"{stem}.md", text)
        write_text(folder / f"{stem}.csv", _format_csv(table.rows))
        draw_curves(table.histories, folder / f"{stem}.png", table.figure, title=table.setting)
        written += [folder / f"{stem}{suffix}" for suffix in (".md", ".csv", ".png")]
    return written


def _format_csv(rows: Sequence[Row]) -> str:
    names = (
        "name",
        "n",
        "mean",
        "sd",
        "difference",
        "low",
        "high",
        "test",
        "p",
        "p_holm",
        "effect",
        "note",
    )
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    writer.writerows([getattr(row, name) for name in names] for row in rows)
    return out.getvalue()
