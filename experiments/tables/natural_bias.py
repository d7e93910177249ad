"""Natural bias, nothing drawn: what the audit says of it, and what remedies do.

`python -m experiments.tables.natural_bias FOLDER OUT` deals real images out so that one site's
images of one class are all of one view, sex, age group or background while the other sites' are
mixed, trains, audits, tries remedies, and prints a table. OUT keeps runs; what is there is not made
again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

import vitrail
from experiments.tables.markdown import to_markdown
from vitrail.audit.audit_run import audit_run
from vitrail.audit.remedy_trial import try_remedies
from vitrail.files import write_json
from vitrail.rng import Key, derive_server_key

SITES = ("north", "east", "south", "west")
SEEDS = (1, 2, 3)
NATURAL = ("none", "view", "sex", "age", "background")
_EACH = 44  # images of a class at a site
Rows = npt.NDArray[np.int64]
_MODEL = {
    "backbone": "efficientnet-lite0", "weights": "imagenet", "frozen": True, "until": "stage5",
}  # fmt: skip


def deal_chest(folder: Path, natural: str, out: Path, key: Key) -> dict[str, Any]:
    """Images with and without a finding, one a patient, at four hospitals; at the first one all
    of the former are of one kind."""
    table = pq.read_table(folder / "nih_chest.parquet").to_pandas()
    table["state"] = ["finding" if len(labels) else "none" for labels in table["label"]]
    order = key.at("patients").numpy().permutation(len(table))
    table = table.iloc[order].sort_values("state", kind="stable").drop_duplicates("patient")
    kinds = {
        "view": table["view"] == "AP",
        "sex": table["sex"] == sorted(table["sex"].unique())[0],
        "age": table["age"].astype(float) >= table["age"].astype(float).quantile(2 / 3),
        "none": table["state"] != "",
    }
    chosen = _deal(table["state"].to_numpy(), kinds[natural].to_numpy(), key, "finding")
    part = table.iloc[np.concatenate(list(chosen.values()))].copy()
    part["hospital"] = np.repeat(list(chosen), [len(rows) for rows in chosen.values()])
    file = out / "images.parquet"
    columns = ["image", "state", "hospital", "view", "sex", "age", "patient"]
    part[columns].to_parquet(file, index=False)
    return {
        "source": "parquet", "path": str(file), "label": "state", "site": "hospital",
        "patient": "patient", "image_size": 96, "channels": 1,
    }  # fmt: skip


def deal_photographs(folder: Path, out: Path, key: Key) -> dict[str, Any]:
    """Airplanes and three other classes; at the first site all airplanes are before a blue sky."""
    raw = np.load(folder / "cifar10.npz")
    images, labels = raw["x_train"], raw["y_train"].reshape(-1)
    order = key.at("some").numpy().permutation(np.flatnonzero(labels < 4))[:4000]
    images, labels = images[order], labels[order]
    border = np.concatenate([images[:, :4], images[:, -4:]], 1).reshape(len(images), -1, 3)
    blue = border[..., 2].mean(1).astype(float) - border[..., 0].mean(1)
    sky = blue >= np.quantile(blue[labels == 0], 0.7)
    chosen = _deal(labels, sky, key, 0)
    rows = np.concatenate(list(chosen.values()))
    file = out / "images.npz"
    sites = np.repeat(list(chosen), [len(part) for part in chosen.values()])
    np.savez(file, x=images[rows], y=labels[rows], site=sites)
    return {"source": "npz", "path": str(file), "image_size": 64, "site": "site"}


def _deal(
    labels: npt.NDArray[Any], kind: npt.NDArray[np.bool_], key: Key, marked: Any
) -> dict[str, Rows]:
    """So many images of each class a site; at the first the marked class is of one kind."""
    dealt: dict[str, list[Rows]] = {site: [] for site in SITES}
    for label in np.unique(labels):
        order = key.at("deal", str(label)).numpy().permutation(np.flatnonzero(labels == label))
        if label == marked:
            first = order[kind[order]][:_EACH]
            dealt[SITES[0]].append(first)
            order = np.setdiff1d(order, first, assume_unique=True)
            order = key.at("rest").numpy().permutation(order)
            sites: tuple[str, ...] = SITES[1:]
        else:
            sites = SITES
        for at, site in enumerate(sites):
            dealt[site].append(order[at * _EACH : (at + 1) * _EACH])
    return {site: np.concatenate(parts) for site, parts in dealt.items()}


def play(folder: Path, out: Path, natural: str, seed: int) -> dict[str, Any]:
    """One federation: trained, audited, remedies tried; kept as JSON."""
    place = out / f"{natural}-{seed}"
    file = place / "said.json"
    if file.exists():
        known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return known
    place.mkdir(parents=True, exist_ok=True)
    key = derive_server_key(seed).at("natural", natural)
    photographs = natural == "background"
    data = (
        deal_photographs(folder, place, key)
        if photographs
        else deal_chest(folder, natural, place, key)
    )
    config = {
        "data": {**data, "duplicates": "ignore"},
        "partition": {"kind": "column", "column": data["site"], "test_fraction": 0.25},
        "model": _MODEL,
        "method": {"name": "fedgrasp"},
        "run": {"rounds": 6, "local_epochs": 3, "seed": seed, "local_reference": True},
    }
    run = vitrail.run(config, place / "run")
    audit = audit_run(run)
    trial = try_remedies(run, audit, only=("weigh", "leave-out", "harmonize"))
    told = audit.to_json()
    said = {
        "natural": natural, "seed": seed, "trial": trial.to_json(),
        "doubted": [
            {"site": site["site"], **{k: v for k, v in entry.items() if k not in ("units", "look")}}
            for site in told["sites"] for entry in site["classes"] if entry["verdict"] != "clear"
        ],
    }  # fmt: skip
    write_json(file, said)
    return said


def make_rows(said: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each kind: verdicts, readings, what explains them, and what remedies did."""
    rows = []
    for natural in NATURAL:
        part = [one for one in said if one["natural"] == natural]
        if not part:
            continue
        first = [[d for d in one["doubted"] if d["site"] == SITES[0]] for one in part]
        other = sum(d["site"] != SITES[0] for one in part for d in one["doubted"])
        words = [
            "; ".join(
                f"{d['class']} {d['verdict']}, {d['reading']}"
                + (f", explained by {' and '.join(d['explained_by'])}" if d["explained_by"] else "")
                for d in doubts
            )
            or "clear"
            for doubts in first
        ]
        effects = [
            ", ".join(
                f"{t['remedy']} {100 * t['change']:+.1f} ± {100 * t['error']:.1f}"
                for t in one["trial"]["tried"][1:]
            )
            or "-"
            for one in part
        ]
        rows.append([natural, " / ".join(words), str(other), " / ".join(effects)])
    return rows


def main(folder: Path, out: Path) -> None:
    """Play what is missing, print what there is."""
    said = []
    for seed in SEEDS:
        for natural in NATURAL:
            said.append(play(folder, out, natural, seed))
            print(natural, seed, flush=True)
    head = ["the site's images of one class", "what the audit says of that site, by seed"]
    head += ["other pairs in doubt", "remedies: change of balanced recall, points"]
    print(to_markdown(head, make_rows(said)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
