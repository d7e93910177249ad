"""Tables of attacks: one row an attack, the references first, so that a figure means something."""

from __future__ import annotations

from collections.abc import Sequence

from vitrail.attack.findings import Row

HEADINGS = ("attack", "PSNR dB", "SSIM", "MSE", "identified", "labels", "steps", "seconds")


def format_cells(row: Row) -> tuple[str, ...]:
    """The cells of one row, as text."""
    name = f"{row.name} ({row.note})" if row.note else row.name
    searched = row.threat is not None
    return (
        name,
        format_psnr(row),
        f"{row.mean('ssim'):.2f}",
        f"{row.mean('mse'):.4f}",
        format_identified(row),
        format_labels(row),
        format_steps(row) if searched else "-",
        f"{row.seconds:.0f}" if searched else "-",
    )


def format_psnr(row: Row) -> str:
    """The mean, with its spread where there are images to have one."""
    spread = f" ± {row.spread('psnr'):.1f}" if len(row.scores) > 1 else ""
    return f"{row.mean('psnr'):.1f}{spread}"


def format_identified(row: Row) -> str:
    """The share of identified images beside what luck gives, and how surprising it is."""
    share = f"{100 * row.mean('identified'):.0f} %"
    luck = row.identification
    if luck is None:
        return f"{share}, chance unknown"
    sure = "p < 0.001" if luck.p_value < 1e-3 else f"p = {luck.p_value:.2g}"
    return f"{share}, chance {100 * luck.chance:.2g} %, {sure}"


def format_labels(row: Row) -> str:
    """Whether the attacker was told the labels; the share that the update gives away."""
    share = None if row.label_recovery is None else f"{100 * row.label_recovery:.0f} %"
    if row.threat is None or row.threat.sees == "images":
        return "-"
    if row.threat.labels == "known":
        return "known" if share is None else f"known ({share} can be inferred)"
    return "inferred" if share is None else f"inferred, {share} right"


def format_steps(row: Row) -> str:
    """The steps of a search; of how many, where a budget ended it."""
    return f"{row.iterations:,} of {row.planned:,}" if row.planned else f"{row.iterations:,}"


def align_columns(
    headings: Sequence[str], lines: Sequence[Sequence[str]], left: Sequence[int]
) -> str:
    """Text in columns as wide as they need to be, so that a log keeps them."""
    table = [tuple(headings), *(tuple(line) for line in lines)]
    wide = [max(len(line[i]) for line in table) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(wide[i]) if i in left else cell.rjust(wide[i]) for i, cell in enumerate(line)
        ).rstrip()
        for line in table
    )


def format_rows_text(rows: Sequence[Row]) -> str:
    """For a terminal."""
    return align_columns(HEADINGS, [format_cells(row) for row in rows], (0,))


def format_rows_markdown(rows: Sequence[Row]) -> str:
    """For the docs."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(format_cells(row))} |" for row in rows]
    return "\n".join(lines)
