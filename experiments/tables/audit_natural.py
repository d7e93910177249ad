"""Federations whose sites really differ, nothing injected: how often the audit cries, and what.

`python -m experiments.tables.audit_natural FOLDER OUT.jsonl [FEDERATIONS]`: true clients of
handwritten digits, true writers of alphabets, and radiographs of hospitals that take one view only
or mix both. Each federation is another draw of sites and of two thirds of their images.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.tables.audit_bank import Bank, Rows, compare_sites, load_bank, make_bank
from experiments.tables.markdown import to_markdown
from vitrail.data.image_set import ImageSet
from vitrail.metrics.binomial import exact_interval
from vitrail.rng import Key, derive_server_key

_BACKBONE = "efficientnet-lite0"
_CLASSES = 4  # digits or alphabets of a federation at most
Deal = Callable[[Bank, Key], list[Rows]]


def _read_npz(file: Path, sites: Callable[[str], str], classes: Callable[[str], str]) -> ImageSet:
    raw = np.load(file, allow_pickle=False)
    names = np.array([classes(str(label)) for label in raw["y"]])
    kinds, labels = np.unique(names, return_inverse=True)
    kept = labels < _CLASSES
    images = raw["x"][kept][..., None]
    rows = np.array([str(n) for n in range(len(images))])
    where = np.array([sites(str(site)) for site in raw["site"]])[kept]
    return ImageSet(images, labels[kept].astype(np.int64), tuple(kinds[:_CLASSES]), rows, where)


def deal_true_sites(bank: Bank, key: Key) -> list[Rows]:
    """Three to nine of the true sites, and two thirds of their images."""
    draw = key.at("deal").numpy()
    assert bank.images.sites is not None
    names = np.unique(bank.images.sites)
    count = int(draw.integers(3, min(9, len(names)) + 1))
    chosen = draw.permutation(names)[:count].tolist()
    return [_thin(np.flatnonzero(bank.images.sites == name), draw) for name in chosen]


def deal_views(bank: Bank, key: Key) -> list[Rows]:
    """Four hospitals: one takes AP only, one PA only, two both."""
    draw = key.at("deal").numpy()
    views = np.asarray(bank.images.extra["view"])
    holder = draw.integers(0, 4, len(views))
    holder[(holder == 0) & (views == "PA")] = 2
    holder[(holder == 1) & (views == "AP")] = 3
    return [_thin(np.flatnonzero(holder == site), draw) for site in range(4)]


def _thin(rows: Rows, draw: np.random.Generator) -> Rows:
    return np.sort(draw.permutation(rows)[: max(1, 2 * len(rows) // 3)])


def load_cases(folder: Path) -> dict[str, tuple[Bank, Deal]]:
    """What there is, with its features."""
    digits = _read_npz(folder / "femnist_digits.npz", str, str)
    # A writer drew one alphabet, each of its characters once: sites are writers of the same number.
    alphabets = _read_npz(
        folder / "omniglot.npz", lambda s: s.split("/")[1], lambda y: y.split("/")[0]
    )
    chest = load_bank("nih_chest", folder, _BACKBONE, 1500)
    return {
        "digits of true clients": (make_bank(digits, digits.labels, _BACKBONE), deal_true_sites),
        "alphabets of true writers": (
            make_bank(alphabets, alphabets.labels, _BACKBONE),
            deal_true_sites,
        ),
        "radiographs, AP, PA, both, both": (chest, deal_views),
    }


def play_natural(bank: Bank, deal: Deal, key: Key) -> dict[str, Any]:
    """What the audit says of one federation."""
    contrasts = compare_sites(bank, deal(bank, key), key)
    units = bank.extractor.get_units(bank.images.images)
    called = [c for c in contrasts if c.verdict == "biased"]
    return {
        "pairs": len(contrasts),
        "biased": len(called),
        "differs": sum(c.verdict == "differs" for c in contrasts),
        "lacks": sum(c.direction.lacks for c in called),
        "families": [c.find_unit(units).family for c in called],
        "effects": [round(c.effect, 2) for c in called],
    }


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Shares of federations with a verdict, and what is named most."""
    lines = []
    for name in dict.fromkeys(r["case"] for r in rows):
        part = [r for r in rows if r["case"] == name]
        cells = [name, str(len(part))]
        for test in ("biased", "differs"):
            hits = sum(r["biased"] + (r["differs"] if test == "differs" else 0) > 0 for r in part)
            low, high = exact_interval(hits, len(part))
            cells.append(f"{hits} ({100 * low:.0f} to {100 * high:.0f} %)")
        pairs = sum(r["pairs"] for r in part)
        cells.append(f"{sum(r['biased'] for r in part)} of {pairs}")
        families = Counter(family for r in part for family in r["families"])
        cells.append(", ".join(f"{f} {n}" for f, n in families.most_common(3)) or "-")
        lines.append(cells)
    head = ["images", "federations", "`biased`", "`biased` or `differs`", "pairs `biased`", "in"]
    print(to_markdown(head, lines))


def main(folder: Path, out: Path, count: int = 100) -> None:
    """Play what is missing, print what there is."""
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(r["case"], r["seed"]) for r in rows}
    with out.open("a", encoding="utf-8") as file:
        for name, (bank, deal) in load_cases(folder).items():
            for seed in range(count):
                if (name, seed) in done:
                    continue
                key = derive_server_key(seed).at("natural", name)
                rows.append({"case": name, "seed": seed, **play_natural(bank, deal, key)})
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    print_table(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 100)
