"""What a defense holds back, and what it costs, as its noise grows: curves of a leakage grid."""

from __future__ import annotations

from pathlib import Path

from vitrail.attack.findings import Row
from vitrail.attack.leakage_grid import NONE, DefenseOutcome, LeakageResults, format_energy_suffix
from vitrail.report.figures.curves import draw_curves

Lines = dict[str, list[tuple[float, float | None]]]


def draw_leakage_curves(results: LeakageResults, folder: Path) -> dict[str, Path]:
    """Draw what varies with the energy, a file each; nothing where a grid has fewer than two."""
    written = {}
    for metric, lines in collect_energy_lines(results).items():
        path = folder / f"{metric.lower().replace(' ', '-')}.png"
        draw_curves(lines, path, metric, "length of the noise / length of the update", log=True)
        written[metric] = path
    return written


def collect_energy_lines(results: LeakageResults) -> dict[str, Lines]:
    """By figure (accuracy, and the PSNR of each attack) and defense: (energy, value).

    What no energy changes is drawn level: no defense, and the mean image that needs no attack.
    """
    energies = sorted({o.asked for o in results.outcomes if o.asked is not None})
    if len(energies) < 2:
        return {}
    names = list(dict.fromkeys(row.name for o in results.outcomes for row in o.rows))
    lines_by_metric = {"accuracy": _collect_lines(results, energies, None)}
    for name in names:
        lines = _collect_lines(results, energies, name)
        for row in results.references:
            if row.name == "mean image":
                lines[row.name] = [(energy, row.mean("psnr")) for energy in energies]
        lines_by_metric[f"PSNR of {name} dB"] = lines
    return lines_by_metric


def _collect_lines(results: LeakageResults, energies: list[float], attack: str | None) -> Lines:
    lines: Lines = {}
    for outcome in results.outcomes:
        value = outcome.accuracy if attack is None else _get_psnr(outcome, attack)
        if outcome.name == NONE:
            lines["no defense"] = [(energy, value) for energy in energies]
        elif outcome.asked is not None:
            name = outcome.name.removesuffix(format_energy_suffix(outcome.asked))
            lines.setdefault(name, []).append((outcome.asked, value))
    return lines


def _get_psnr(outcome: DefenseOutcome, attack: str) -> float | None:
    """Of the first row: the attacker who knows the labels."""
    row: Row | None = next((row for row in outcome.rows if row.name == attack), None)
    return None if row is None else row.mean("psnr")
