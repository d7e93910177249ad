"""Tables of attacks: one row an attack, the references first, so that a figure means something."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from vitrail.attack.trial import Row

HEADINGS = ("attack", "PSNR dB", "SSIM", "MSE", "identified", "labels", "steps", "seconds")


def cells(row: Row) -> tuple[str, ...]:
    """The cells of one row, as text."""
    name = f"{row.name} ({row.note})" if row.note else row.name
    share = "-" if row.label_recovery is None else f"{100 * row.label_recovery:.0f} %"
    searched = row.threat is not None
    return (
        name,
        f"{row.mean('psnr'):.1f} ± {row.spread('psnr'):.1f}",
        f"{row.mean('ssim'):.2f}",
        f"{row.mean('mse'):.4f}",
        f"{100 * row.mean('identified'):.0f} %",
        share,
        str(row.iterations) if searched else "-",
        f"{row.seconds:.0f}" if searched else "-",
    )


def rows_table(rows: Sequence[Row]) -> Table:
    """For a terminal."""
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if number else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*cells(row))
    return table


def rows_markdown(rows: Sequence[Row]) -> str:
    """For the docs."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    return "\n".join(lines)
