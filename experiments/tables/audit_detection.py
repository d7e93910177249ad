"""What the audit finds: federations of real images with one known bias, and as many without.

`python -m experiments.tables.audit_detection FOLDER OUT.jsonl [main|curve|new]` writes a row a
federation, goes on where it stopped, and prints the table: `main` has kinds of bias on which the
score was developed, `curve` marks of several areas on shares of the images, and `new` kinds that
appear nowhere else in this project.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.tables.audit_bank import SOURCES, Bank, Rows, compare_sites, deal, load_bank
from experiments.tables.detection_table import print_tables
from experiments.tables.new_marks import NEW_KINDS, stamp_new
from vitrail.config.schema import Bias
from vitrail.data.bias.marks import SPRITES, stamp
from vitrail.rng import Key, derive_server_key

FAMILIES: dict[str, tuple[str, ...]] = {
    "place": ("emoji", "patch", "text", "ruler", "electrode", "tape"),
    "anywhere": ("emoji", "patch", "electrode", "text"),
    "tone": ("gamma", "color", "contrast", "brightness", "vignette"),
    "acquisition": ("blur", "noise", "jpeg", "resample", "sharpen", "posterize", "scanlines"),
}
AREAS, SHARES = (0.005, 0.01, 0.02, 0.04), (0.25, 0.5, 1.0)
NAMES = ("source", "sites", "skew", "seed", "family", "kind", "area", "share")
_COUNTS = (3, 4, 6, 8, 16)
_LEAST = 6  # images of the class that the marked site must have


def list_cases(part: str, repeats: int) -> Iterator[dict[str, Any]]:
    """The federations of one part of the table; every biased one beside an unbiased one."""
    for repeat in range(repeats):
        if part == "curve":
            yield from _list_curve(repeat)
            continue
        for number, source in enumerate(SOURCES):
            for family, kinds in (NEW_KINDS if part == "new" else FAMILIES).items():
                base = {
                    "source": source, "sites": _COUNTS[(repeat + number) % len(_COUNTS)],
                    "skew": (repeat + number) % 2 == 1,
                    "seed": repeat + (1000 if part == "new" else 0),
                }  # fmt: skip
                kind = kinds[(repeat + number) % len(kinds)]
                yield {**base, "family": family, "kind": kind, "area": 0.02, "share": 1.0}
                yield {**base, "family": "none", "kind": family, "area": 0.0, "share": 0.0}


def _list_curve(repeat: int) -> Iterator[dict[str, Any]]:
    source = list(SOURCES)[repeat % len(SOURCES)]
    family = ("place", "anywhere")[repeat % 2]
    kind = FAMILIES[family][repeat % len(FAMILIES[family])]
    for area in AREAS:
        for share in SHARES:
            base = {"source": source, "sites": 4, "skew": False, "seed": 100 + repeat}
            yield {**base, "family": family, "kind": kind, "area": area, "share": share}


def draw_bias(case: dict[str, Any], key: Key) -> Bias:
    """A mark of an area, at a drawn place and of a drawn color; washes at full strength."""
    draw = key.at("bias").numpy()
    color = tuple(int(v) for v in draw.integers(0, 256, 3))
    x, y = (float(v) for v in draw.uniform(0.02, 0.98, 2))
    kind = case["kind"]
    size = math.sqrt(case["area"]) if kind in SPRITES else 0.15 if kind != "blur" else 0.06
    place: Any = "random" if case["family"] == "anywhere" else (x, y)
    return Bias(kind=kind, size=size, share=case["share"], position=place, color=color)


def mark_features(
    bank: Bank, rows: Rows, case: dict[str, Any], key: Key
) -> dict[int, np.ndarray[Any, Any]]:
    """Features of the marked ones among these images, which are of one class of one site."""
    chosen = key.at("share").numpy().permutation(rows)
    chosen = np.sort(chosen[: int(case["share"] * len(chosen) + 0.5)])
    pixels = bank.images.images[chosen]
    if case["kind"] in {kind for kinds in NEW_KINDS.values() for kind in kinds}:
        pixels = stamp_new(pixels, case["kind"], case["area"], key.at("stamp"))
    else:
        pixels = stamp(pixels, draw_bias(case, key), key.at("stamp"), chosen)[0]
    features = bank.extractor(pixels).numpy().astype(np.float64)
    return dict(zip(chosen.tolist(), features, strict=True))


def judge(bank: Bank, case: dict[str, Any]) -> dict[str, Any]:
    """Play a case and keep what the tables count."""
    key = derive_server_key(case["seed"]).at(
        "bank", *(case[n] for n in ("source", "family", "kind"))
    )
    sites = deal(bank, case["sites"], case["skew"], key)
    changed, truth = None, None
    if case["family"] != "none":
        able = [
            (s, c) for s, rows in enumerate(sites) for c in range(bank.classes)
            if (bank.labels[rows] == c).sum() >= _LEAST
        ]  # fmt: skip
        site, label = able[int(key.at("where").numpy().integers(len(able)))]
        rows = sites[site]
        changed = mark_features(bank, rows[bank.labels[rows] == label], case, key)
        truth = (f"s{site:02}", label)
    contrasts = compare_sites(bank, sites, key, changed)
    others = [c for c in contrasts if (c.site, c.label) != truth]
    own = next((c for c in contrasts if (c.site, c.label) == truth), None)
    row = {
        **case,
        "judged": own is not None,
        "others": [round(c.score, 3) for c in others],
        "alarm": any(c.verdict == "biased" for c in others),
        "differs": any(c.verdict != "clear" for c in others),
    }
    if own is not None:
        unit = own.find_unit(bank.extractor.get_units(bank.images.images))
        row |= {
            "score": own.score, "verdict": own.verdict, "first": contrasts[0] is own,
            "p": own.raw_p, "unit": unit.family, "images": own.images,
        }  # fmt: skip
    return row


def play_missing(
    folder: Path, out: Path, part: str, repeats: int, backbone: str = "efficientnet-lite0"
) -> list[dict[str, Any]]:
    """All rows of a part, those that were there before first."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {tuple(row[n] for n in NAMES) for row in rows}
    cases = [c for c in list_cases(part, repeats) if tuple(c[n] for n in NAMES) not in done]
    with out.open("a", encoding="utf-8") as file:
        for source in SOURCES:
            of_source = [c for c in cases if c["source"] == source]
            if not of_source:
                continue
            bank = load_bank(source, folder, backbone)
            for case in of_source:
                rows.append(judge(bank, case))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    return rows


def main(folder: Path, out: Path, part: str = "main", repeats: int = 5) -> None:
    """Play what is missing, print what there is."""
    torch.set_num_threads(1)
    print_tables(play_missing(folder, out, part, repeats), part)


if __name__ == "__main__":
    named = sys.argv[3] if len(sys.argv) > 3 else "main"
    main(Path(sys.argv[1]), Path(sys.argv[2]), named, int(sys.argv[4]) if len(sys.argv) > 4 else 5)
