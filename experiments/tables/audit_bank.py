"""The audit on many federations at once, without training: features are computed once an image.

`python -m experiments.tables.audit_bank FOLDER OUT.jsonl` writes a row a federation, goes on where
it stopped, and prints the tables. FOLDER has the real images.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from experiments.tables.markdown import to_markdown
from vitrail.audit.counterfactual.overlap import iou
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.exchange import Exchange, SiteFeatures
from vitrail.audit.detection.features import FeatureExtractor
from vitrail.audit.detection.halves import split_halves
from vitrail.audit.detection.tight_place import find_tight_place
from vitrail.config.load import parse
from vitrail.config.schema import Bias, Model
from vitrail.data.bias.marks import SPRITES, stamp
from vitrail.data.image_set import ImageSet
from vitrail.data.load_images import load_with_problems
from vitrail.data.normalize import Normalize
from vitrail.metrics.binomial import exact_interval
from vitrail.metrics.ranking import auc
from vitrail.models.network import make_network
from vitrail.rng import Key, derive_server_key

Rows = npt.NDArray[np.int64]
FAMILIES: dict[str, tuple[str, ...]] = {
    "place": ("emoji", "patch", "text", "ruler", "electrode", "tape"),
    "anywhere": ("emoji", "patch", "electrode", "text"),
    "tone": ("gamma", "color", "contrast", "brightness", "vignette"),
    "acquisition": ("blur", "noise", "jpeg", "resample", "sharpen", "posterize", "scanlines"),
}
LEFT_OUT = "acquisition"  # no choice of the score was made while looking at this family
SOURCES: dict[str, dict[str, Any]] = {
    "aviary": {"source": "embedded", "image_size": 64, "aviary": {"images": 1500, "classes": 4}},
    "cub50": {"path": "cub50.parquet", "image_size": 96},
    "cifar10": {"source": "npz", "path": "cifar10.npz", "limit": 2000, "keep": 4},
    "smiles": {"path": "smiles.parquet", "image_size": 64, "channels": 1, "limit": 1500},
    "tiny_imagenet20": {"path": "tiny_imagenet20.parquet", "image_size": 64, "keep": 5},
    "nih_chest": {
        "path": "nih_chest.parquet", "image_size": 96, "channels": 1, "positive": "Effusion",
        "patient": "patient", "balance": True,
    },
}  # fmt: skip
_GROUP = {"cub50": 8}  # species together, or a site has too few of each
_IMAGES = 1500


@dataclass
class Bank:
    """Images of one source, with their features by one backbone."""

    images: ImageSet
    labels: Rows
    extractor: FeatureExtractor
    features: npt.NDArray[np.float32]

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.labels.max()) + 1


def load_bank(name: str, folder: Path, backbone: str) -> Bank:
    """Load a source and compute its features."""
    data = {"source": "parquet", **SOURCES[name], "duplicates": "ignore", "conflicts": "allow"}
    if "path" in data:
        data["path"] = str(folder / data["path"])
    loaded = parse({"data": data})
    images = load_with_problems(loaded.config.data, loaded.base, derive_server_key(1).at(name))[0]
    order = derive_server_key(1).at(name).numpy().permutation(len(images))[:_IMAGES]
    images = images.take(np.sort(order))
    channels = int(images.images.shape[3])
    pretrained: dict[str, Any] = {}
    if backbone.startswith("efficientnet"):
        pretrained = {"weights": "imagenet", "frozen": True, "until": "stage5"}
    network, _ = make_network(
        Model(backbone=backbone, **pretrained), "protopnet", channels, 2,
        derive_server_key(1).at("init"),
    )  # fmt: skip
    key = derive_server_key(1).at("audit", "features")
    extractor = FeatureExtractor(network, Normalize.from_name("unit", channels), key)
    labels = images.labels // _GROUP.get(name, 1)
    return Bank(images, labels, extractor, extractor(images.images).numpy())


def deal(bank: Bank, sites: int, skew: bool, key: Key) -> list[Rows]:
    """Images to sites: patients together, IID or Dirichlet 0.3."""
    draw = key.at("deal").numpy()
    holder = draw.integers(0, sites, len(bank.labels))
    if skew:
        for label in range(bank.classes):
            of_class = np.flatnonzero(bank.labels == label)
            holder[of_class] = draw.choice(sites, len(of_class), p=draw.dirichlet([0.3] * sites))
    if bank.images.patients is not None:
        _, group = np.unique(bank.images.patients, return_inverse=True)
        first = np.zeros(group.max() + 1, np.int64)
        first[group[::-1]] = holder[::-1]
        holder = first[group]
    return [np.flatnonzero(holder == site) for site in range(sites)]


def play(
    bank: Bank, sites: Sequence[Rows], key: Key, bias: Bias | None, at: tuple[int, int]
) -> tuple[list[Contrast], dict[str, Any]]:
    """One federation: what the audit says, and how the box fits."""
    units = bank.extractor.get_units(bank.images.images)
    held, fit = {}, {}
    for number, rows in enumerate(sites):
        features = bank.features[rows].astype(np.float64)
        labels = bank.labels[rows]
        if bias is not None and number == at[0]:
            marked = np.flatnonzero(labels == at[1])
            chosen = key.at("share").numpy().permutation(marked)
            chosen = np.sort(chosen[: int(bias.share * len(chosen) + 0.5)])
            pixels = np.array(bank.images.images[rows])
            pixels[chosen], boxes = stamp(pixels[chosen], bias, key.at("stamp"), chosen)
            features[chosen] = bank.extractor(pixels[chosen]).numpy()
            fit = {"pixels": pixels, "labels": labels, "boxes": boxes}
        patients = None if bank.images.patients is None else bank.images.patients[rows]
        halves = split_halves(labels, patients, key.at("halves", number))
        held[f"s{number:02}"] = SiteFeatures(
            features, labels, halves.a, halves.b, halves.group, bank.classes
        )
    exchange = Exchange({n: s.summarize(units) for n, s in held.items()}, units)
    told = {n: s.count(exchange.directions) for n, s in held.items()}
    contrasts = exchange.compare(told, key.at("permutations"))
    return contrasts, _fit_box(contrasts, units, fit, at) if fit else {}


def _fit_box(
    contrasts: Sequence[Contrast], units: Any, fit: dict[str, Any], at: tuple[int, int]
) -> dict[str, Any]:
    pair = (f"s{at[0]:02}", at[1])
    contrast = next((c for c in contrasts if (c.site, c.label) == pair), None)
    if contrast is None or np.isnan(fit["boxes"]).any() or np.ptp(fit["boxes"][:, 0]) > 0:
        return {}
    of_class = fit["labels"] == at[1]
    unit = contrast.find_unit(units)
    tight = find_tight_place(fit["pixels"][of_class], fit["pixels"][~of_class], unit.box)
    if tight is None:
        return {"center": False, "overlap": 0.0}
    x0, y0, x1, y1 = (int(v) for v in fit["boxes"][0])
    x, y = (tight.box[0] + tight.box[2]) / 2, (tight.box[1] + tight.box[3]) / 2
    inside = x0 <= x <= x1 and y0 <= y <= y1
    return {"center": bool(inside), "overlap": iou(tight.box, (x0, y0, x1, y1))}


def draw_bias(family: str, kind: str, area: float, share: float, key: Key) -> Bias:
    """A mark of an area, at a drawn place and of a drawn color; washes at full strength."""
    draw = key.at("bias").numpy()
    color = tuple(int(v) for v in draw.integers(0, 256, 3))
    x, y = (float(v) for v in draw.uniform(0.02, 0.98, 2))
    size = math.sqrt(area) if kind in SPRITES else 0.15 if kind != "blur" else 0.06
    place: Any = "random" if family == "anywhere" else (x, y)
    return Bias(kind=kind, size=size, share=share, position=place, color=color)


def list_cases(banks: Sequence[str], repeats: int) -> Iterator[dict[str, Any]]:
    """Every federation that is to be played: biased ones, and as many without a bias."""
    for repeat in range(repeats):
        for source in banks:
            for family, kinds in FAMILIES.items():
                sites = (3, 4, 6, 8, 16)[(repeat + len(source)) % 5]
                kind = kinds[(repeat + banks.index(source)) % len(kinds)]
                base = {"source": source, "sites": sites, "skew": repeat % 2 == 1, "seed": repeat}
                yield {**base, "family": family, "kind": kind, "area": 0.02, "share": 1.0}
                yield {**base, "family": "none", "kind": family, "area": 0.0, "share": 0.0}
    for area in (0.005, 0.01, 0.02, 0.04):
        for share in (0.25, 0.5, 1.0):
            for repeat in range(repeats):
                source = banks[repeat % len(banks)]
                kind = FAMILIES["place"][repeat % 6]
                base = {"source": source, "sites": 4, "skew": False, "seed": 100 + repeat}
                yield {**base, "family": "curve", "kind": kind, "area": area, "share": share}


def judge(bank: Bank, case: dict[str, Any]) -> dict[str, Any]:
    """Play a case and keep what the tables count."""
    key = derive_server_key(case["seed"]).at(
        "bank", *(case[n] for n in ("source", "family", "kind"))
    )
    sites = deal(bank, case["sites"], case["skew"], key)
    draw = key.at("where").numpy()
    bias, at = None, (0, 0)
    if case["family"] != "none":
        bias = draw_bias(case["family"], case["kind"], case["area"], case["share"], key)
        able = [
            (s, c) for s, rows in enumerate(sites) for c in range(bank.classes)
            if (bank.labels[rows] == c).sum() >= 6
        ]  # fmt: skip
        at = able[int(draw.integers(len(able)))] if able else (0, 0)
    contrasts, box = play(bank, sites, key, bias, at)
    truth = (f"s{at[0]:02}", at[1])
    others = [c for c in contrasts if bias is None or (c.site, c.label) != truth]
    own = next((c for c in contrasts if bias is not None and (c.site, c.label) == truth), None)
    row = {
        **case, **box,
        "judged": own is not None,
        "others": [round(c.score, 3) for c in others],
        "p": [c.raw_p for c in others] if bias is None else [],
        "alarm": any(c.verdict == "biased" for c in others),
        "differs": any(c.verdict != "clear" for c in others),
    }  # fmt: skip
    if own is not None:
        row |= {"score": own.score, "verdict": own.verdict, "first": contrasts[0] is own}
    return row


def print_tables(rows: Sequence[dict[str, Any]]) -> None:
    """AUC, first, `biased`, box by family; the curve; false alarms."""
    lines = []
    for family in FAMILIES:
        lines.append(_summarize(family, [r for r in rows if r["family"] == family]))
    head = ["family", "judged", "AUC", "first", "`biased`", "other alarms", "center", "overlap"]
    print(to_markdown(head, lines), "\n")
    curve = []
    for area in (0.005, 0.01, 0.02, 0.04):
        cells = [f"{area:.1%}"]
        for share in (0.25, 0.5, 1.0):
            part = [r for r in rows if r["family"] == "curve" and r["area"] == area]
            part = [r for r in part if r["share"] == share and r["judged"]]
            named = sum(r["verdict"] == "biased" for r in part)
            cells.append(f"{named} of {len(part)}")
        curve.append(cells)
    print(to_markdown(["area", "share 0.25", "0.5", "1"], curve), "\n")
    quiet = [r for r in rows if r["family"] == "none"]
    p = np.array([v for r in quiet for v in r["p"]])
    shares = ", ".join(f"{(p <= a).mean():.4f} at {a}" for a in (0.01, 0.05, 0.1, 0.2))
    alarms = sum(r["alarm"] for r in quiet)
    low, high = exact_interval(alarms, len(quiet))
    print(f"{alarms} of {len(quiet)} unbiased federations biased ({low:.3f} to {high:.3f}), "
          f"{sum(r['differs'] for r in quiet)} differ; p-values: {shares}")  # fmt: skip


def _summarize(family: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    judged = [r for r in rows if r["judged"]]
    good = [s for r in judged for s in r["others"]]
    bad = [r["score"] for r in judged]
    boxed = [r for r in judged if "overlap" in r and r["verdict"] == "biased"]
    return [
        family + (" (left out)" if family == LEFT_OUT else ""),
        f"{len(judged)} of {len(rows)}",
        f"{auc(bad, good):.3f}" if bad and good else "-",
        str(sum(r["first"] for r in judged)),
        str(sum(r["verdict"] == "biased" for r in judged)),
        str(sum(r["alarm"] for r in judged)),
        f"{sum(r['center'] for r in boxed)} of {len(boxed)}" if boxed else "-",
        f"{np.median([r['overlap'] for r in boxed]):.2f}" if boxed else "-",
    ]


def main(folder: Path, out: Path, repeats: int = 8, backbone: str = "efficientnet-lite0") -> None:
    """Play what is missing, print what there is."""
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    names = ("source", "sites", "skew", "seed", "family", "kind", "area", "share")
    done = {tuple(row[n] for n in names) for row in rows}
    banks: dict[str, Bank] = {}
    with out.open("a", encoding="utf-8") as file:
        for case in list_cases(list(SOURCES), repeats):
            if tuple(case[n] for n in names) in done:
                continue
            if case["source"] not in banks:
                banks[case["source"]] = load_bank(case["source"], folder, backbone)
            rows.append(judge(banks[case["source"]], case))
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
    print_tables(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 8)
