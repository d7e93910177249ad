"""How often the audit doubts honest sites: unbiased federations of real images, nobody lies.

`python -m experiments.tables.audit_doubts FOLDER OUT.jsonl [FEDERATIONS]` deals the same images out
again and again, goes on where it stopped, and prints how many federations have a doubted site; and,
where one site tells marked means and a clean histogram, how often that site is doubted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.tables.audit_bank import SOURCES, Bank, Floats, Rows, deal, load_bank, tell_tables
from experiments.tables.markdown import to_markdown
from vitrail.audit.detection.halves import split_halves
from vitrail.audit.detection.told_consistency import check_told
from vitrail.metrics.binomial import exact_interval
from vitrail.rng import Key, derive_server_key

BACKBONE = "efficientnet-lite0"
SITES = (3, 4, 8)
_IMAGES, _CLASSES = 600, 3  # of a source
_FIRST = 100  # seed; the check was made while looking at those before


def play_both(bank: Bank, sites: int, source: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Counts over federations that are dealt out IID and by Dirichlet 0.3 in turn."""
    reasons: list[str] = []
    doubted = noticed = 0
    for seed in seeds:
        key = derive_server_key(seed).at("doubts", source, sites)
        dealt = deal(bank, sites, seed % 2 == 1, key)
        doubts = check_told(*tell_tables(bank, dealt, key))
        reasons += doubts.values()
        doubted += bool(doubts)
        lied = tell_tables(bank, dealt, key, mark_half_a(bank, dealt[0], key))
        noticed += "s00" in check_told(*lied)
    return {
        "federations": len(seeds), "doubted": doubted, "noticed": noticed, "reasons": reasons
    }  # fmt: skip


def mark_half_a(bank: Bank, rows: Rows, key: Key) -> dict[int, Floats]:
    """Features of the first site's images of class 0 in A, one place moved by 3 SD: B is told as
    if nothing were there."""
    units = bank.extractor.get_units(bank.images.images)
    place = next(unit for unit in units if unit.kind == "place")
    patients = None if bank.images.patients is None else bank.images.patients[rows]
    half = rows[split_halves(bank.labels[rows], patients, key.at("halves", 0)).a]
    moved = np.zeros(bank.features.shape[1])
    moved[place.columns] = 3 * bank.features[:, place.columns].std(0)
    return {row: bank.features[row] + moved for row in half.tolist() if bank.labels[row] == 0}


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Federations with a doubted site, by number of sites and together."""
    lines = []
    for sites in (*SITES, None):
        part = [r for r in rows if sites is None or r["sites"] == sites]
        count = sum(r["federations"] for r in part)
        if count:
            cells = [_format_share(sum(r[n] for r in part), count) for n in ("doubted", "noticed")]
            lines.append([str(sites or "all"), *cells])
    print(to_markdown(["sites", "an honest site doubted", "a liar doubted"], lines))


def _format_share(hits: int, count: int) -> str:
    low, high = exact_interval(hits, count)
    return f"{hits} of {count} ({100 * low:.1f} to {100 * high:.1f} %)"


def main(folder: Path, out: Path, count: int = 20) -> None:
    """Play what is missing, `count` federations a source and number of sites; print all."""
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(r["source"], r["sites"]) for r in rows}
    with out.open("a", encoding="utf-8") as file:
        for source in SOURCES:
            wanted = [sites for sites in SITES if (source, sites) not in done]
            if not wanted:
                continue
            bank = load_bank(source, folder, BACKBONE, _IMAGES, _CLASSES)
            for sites in wanted:
                row = play_both(bank, sites, source, range(_FIRST, _FIRST + count))
                rows.append({"source": source, "sites": sites, **row})
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    print_table(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 20)
