"""What a defense holds back, and what it costs, as its noise grows: curves of a leakage grid."""

from __future__ import annotations

from pathlib import Path

from vitrail.attack.leakage import NONE, Leakage, Outcome, at
from vitrail.attack.trial import Row
from vitrail.report.curves import curves

Lines = dict[str, list[tuple[float, float | None]]]


def leakage_curves(found: Leakage, folder: Path) -> dict[str, Path]:
    """Draw what varies with the energy, a file each; nothing where a grid has fewer than two."""
    written = {}
    for words, lines in energy_lines(found).items():
        path = folder / f"{words.lower().replace(' ', '-')}.png"
        curves(lines, path, words, "length of the noise / length of the update", log=True)
        written[words] = path
    return written


def energy_lines(found: Leakage) -> dict[str, Lines]:
    """By figure (accuracy, and the PSNR of each attack) and defense: (energy, value).

    What no energy changes is drawn level: no defense, and the mean image that needs no attack.
    """
    energies = sorted({o.asked for o in found.outcomes if o.asked is not None})
    if len(energies) < 2:
        return {}
    names = list(dict.fromkeys(row.name for o in found.outcomes for row in o.rows))
    made = {"accuracy": _lines(found, energies, None)}
    for name in names:
        lines = _lines(found, energies, name)
        for row in found.references:
            if row.name == "mean image":
                lines[row.name] = [(energy, row.mean("psnr")) for energy in energies]
        made[f"PSNR of {name} dB"] = lines
    return made


def _lines(found: Leakage, energies: list[float], attack: str | None) -> Lines:
    lines: Lines = {}
    for outcome in found.outcomes:
        value = outcome.accuracy if attack is None else _psnr(outcome, attack)
        if outcome.name == NONE:
            lines["no defense"] = [(energy, value) for energy in energies]
        elif outcome.asked is not None:
            name = outcome.name.removesuffix(at(outcome.asked))
            lines.setdefault(name, []).append((outcome.asked, value))
    return lines


def _psnr(outcome: Outcome, attack: str) -> float | None:
    """Of the first row: the attacker who knows the labels."""
    row: Row | None = next((row for row in outcome.rows if row.name == attack), None)
    return None if row is None else row.mean("psnr")
