"""False alarms of the audit on real images: thousands of federations in which nothing was injected.

`python -m experiments.tables.audit_quiet FOLDER OUT.jsonl [FEDERATIONS]` deals the same images out
again and again, goes on where it stopped, and prints how often p-values are small and verdicts are
`biased`, for each backbone and number of sites.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.tables.audit_bank import SOURCES, Bank, compare_sites, deal, load_bank
from experiments.tables.markdown import to_markdown
from vitrail.metrics.binomial import exact_interval
from vitrail.rng import derive_server_key

BACKBONES = ("efficientnet-lite0", "resnet8", "small-cnn")
SITES = (3, 4, 8, 16)
LEVELS = (0.01, 0.05, 0.1, 0.2)
_ROW = 25  # federations a line of the file
_IMAGES, _CLASSES = 600, 3  # of a source


def play_quiet(bank: Bank, sites: int, source: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Counts over federations that are dealt out IID and by Dirichlet 0.3 in turn.

    `first` is one p-value a federation, drawn at random: these are independent, those of all
    pairs are not.
    """
    first, every, biased, differs, pairs = [], np.zeros(len(LEVELS), int), 0, 0, 0
    for seed in seeds:
        key = derive_server_key(seed).at("quiet", source, sites)
        contrasts = compare_sites(bank, deal(bank, sites, seed % 2 == 1, key), key)
        if not contrasts:
            continue
        p = np.array(sorted((c.site, c.label, c.raw_p) for c in contrasts), object)[:, 2]
        first.append(float(p[int(key.at("first").numpy().integers(len(p)))]))
        every += np.array([(p <= level).sum() for level in LEVELS])
        pairs += len(p)
        biased += any(c.verdict == "biased" for c in contrasts)
        differs += any(c.verdict != "clear" for c in contrasts)
    return {
        "first": first, "every": every.tolist(), "pairs": pairs, "biased": int(biased),
        "differs": int(differs), "federations": len(seeds),
    }  # fmt: skip


def print_tables(rows: Sequence[dict[str, Any]]) -> None:
    """Shares of small p-values, with exact intervals over one a federation, and verdicts."""
    lines = []
    for backbone in BACKBONES:
        for sites in SITES:
            part = [r for r in rows if (r["backbone"], r["sites"]) == (backbone, sites)]
            if part:
                lines.append([backbone, str(sites), *_summarize(part)])
    head = ["backbone", "sites", "federations", *(f"p <= {level:g}" for level in LEVELS)]
    print(to_markdown([*head, "`biased`", "`differs` or `biased`"], lines))


def _summarize(rows: Sequence[dict[str, Any]]) -> list[str]:
    first = np.concatenate([r["first"] for r in rows])
    pairs, count = sum(r["pairs"] for r in rows), sum(r["federations"] for r in rows)
    cells = [str(count)]
    for at, level in enumerate(LEVELS):
        low, high = exact_interval(int((first <= level).sum()), len(first))
        every = sum(r["every"][at] for r in rows) / max(1, pairs)
        cells.append(f"{100 * every:.2f} ({100 * low:.1f} to {100 * high:.1f})")
    for name in ("biased", "differs"):
        hits = sum(r[name] for r in rows)
        low, high = exact_interval(hits, count)
        cells.append(f"{100 * hits / count:.1f} ({100 * low:.1f} to {100 * high:.1f})")
    return cells


def main(folder: Path, out: Path, count: int = 1000) -> None:
    """Play what is missing, print what there is."""
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(r["backbone"], r["sites"], r["source"], r["start"]) for r in rows}
    names = list(SOURCES)
    with out.open("a", encoding="utf-8") as file:
        for backbone in BACKBONES:
            banks: dict[str, Bank] = {}
            for block in range(-(-count // _ROW)):
                source = names[block % len(names)]
                for sites in SITES:
                    at = (backbone, sites, source, block * _ROW)
                    if at in done:
                        continue
                    if source not in banks:
                        banks[source] = load_bank(source, folder, backbone, _IMAGES, _CLASSES)
                    seeds = range(block * _ROW, (block + 1) * _ROW)
                    row = dict(zip(("backbone", "sites", "source", "start"), at, strict=True))
                    rows.append({**row, **play_quiet(banks[source], sites, source, seeds)})
                    file.write(json.dumps(rows[-1]) + "\n")
                    file.flush()
    print_tables(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1000)
