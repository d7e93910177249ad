"""Accuracy against epsilon by where the noise of client-level privacy is added.

    python -m experiments.tables.where_noise --out docs/figures/where-noise.png

FedAvg of a linear classifier on the digits of scikit-learn (1,797 images of 8 x 8, 650 numbers),
dealt out evenly over 8, 32, 100 or 300 sites; 20 rounds, all sites in each, 5 full-batch steps a
turn. Noise at the site, in the sum by a trusted server, distributed over the sites (nobody
colludes), or none. Clip and learning rate are chosen for each cell alike, by accuracy on validation
images under a seed of its own; the test images are looked at once, over 3 other seeds. Noise is
calibrated and drawn by the code of the package; masks are left out, because they come off to the
last bit.
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vitrail.release.accounting.accountant import AccountantName, Event, calibrate_noise
from vitrail.rng import Key, derive_server_key
from vitrail.secure_aggregation.fixed_point import from_fixed, to_fixed
from vitrail.secure_aggregation.graph import compute_threshold
from vitrail.secure_aggregation.shared_noise import SharedNoise

Numbers = npt.NDArray[np.float64]
SITES = (8, 32, 100, 300)
EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)
PLACES = ("site", "sum", "distributed")
CLIPS, RATES = (0.3, 1.0, 3.0), (0.5, 2.0)
ROUNDS, STEPS, DELTA = 20, 5, 1e-4
TUNING_SEED, SEEDS = 0, (1, 2, 3)
NEAR_CHANCE = 0.2  # of ten classes; what is below is not shown


def load_digits(seed: int) -> list[tuple[Numbers, npt.NDArray[np.int64]]]:
    """Training, validation and test images with their labels."""
    from sklearn.datasets import load_digits as load  # type: ignore[import-untyped]

    data = load()
    order = derive_server_key(seed).at("split").numpy().permutation(len(data.target))
    x = np.hstack([data.data / 16.0, np.ones((len(order), 1))])[order]
    y = data.target[order].astype(np.int64)
    return [(x[:1200], y[:1200]), (x[1200:1500], y[1200:1500]), (x[1500:], y[1500:])]


def compute_change(w: Numbers, x: Numbers, y: Numbers, rate: float) -> Numbers:
    """What some full-batch steps of softmax regression change at every site at once."""
    local = np.repeat(w[None], len(x), 0)
    for _ in range(STEPS):
        logits = x @ local
        logits -= logits.max(-1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(-1, keepdims=True)
        local -= rate * np.swapaxes(x, 1, 2) @ (p - y) / x.shape[1]
    change: Numbers = local - w
    return change


def train(
    part: tuple[Numbers, npt.NDArray[np.int64]],
    sites: int,
    where: str,
    noise: float,
    clip: float,
    rate: float,
    key: Key,
) -> Numbers:
    """The global model after all rounds."""
    count = len(part[1]) // sites
    x = part[0][: sites * count].reshape(sites, count, -1)
    y = np.eye(10)[part[1][: sites * count]].reshape(sites, count, 10)
    w = np.zeros((x.shape[-1], 10))
    for round_ in range(ROUNDS):
        change = compute_change(w, x, y, rate).reshape(sites, -1)
        if where != "none":
            norms = np.linalg.norm(change, axis=1, keepdims=True)
            change *= np.minimum(1.0, clip / np.maximum(norms, 1e-12))
        total = add_up(change, where, noise * clip, key.at(round_))
        w = w + total.reshape(w.shape) / sites
    return w


def add_up(change: Numbers, where: str, deviation: float, key: Key) -> Numbers:
    """The noisy sum over sites."""
    sites, size = change.shape
    if where == "distributed":
        threshold = compute_threshold(sites)
        words = np.zeros(size, np.uint64)
        for site in range(sites):
            share = SharedNoise(deviation, 0, [(0, size)], key.at("site", site))
            words += share.add(to_fixed(torch.from_numpy(change[site]), sites), threshold)
        return np.asarray(from_fixed(words).numpy())
    total: Numbers = change.sum(0)
    if where == "none":
        return total
    spread = deviation * (math.sqrt(sites) if where == "site" else 1.0)
    return total + spread * key.numpy().standard_normal(size)


def score(w: Numbers, part: tuple[Numbers, npt.NDArray[np.int64]]) -> float:
    """Accuracy on some images."""
    return float(np.mean((part[0] @ w).argmax(1) == part[1]))


def play_cell(sites: int, where: str, epsilon: float) -> dict[str, Any]:
    """One point of the figure: clip and rate by validation images, then the test images."""
    how: AccountantName = "rdp" if where == "distributed" else "pld"
    noise = 0.0
    if where != "none":
        noise = calibrate_noise(epsilon, DELTA, (Event(1.0, times=ROUNDS),), how)

    def play(clip: float, rate: float, seed: int) -> tuple[float, float]:
        parts = load_digits(seed)
        key = derive_server_key(seed).at(where, sites, epsilon, clip, rate)
        w = train(parts[0], sites, where, noise, clip, rate, key)
        return score(w, parts[1]), score(w, parts[2])

    choices = list(product(CLIPS if where != "none" else CLIPS[:1], RATES))
    best = max(choices, key=lambda choice: play(choice[0], choice[1], TUNING_SEED)[0])
    tests = [play(best[0], best[1], seed)[1] for seed in SEEDS]
    return {
        "sites": sites,
        "where": where,
        "epsilon": epsilon,
        "clip": best[0],
        "rate": best[1],
        "accuracy": round(float(np.mean(tests)), 3),
        "least": round(min(tests), 3),
        "most": round(max(tests), 3),
    }


def draw_figure(rows: list[dict[str, Any]], out: Path) -> None:
    """Four panels, one a number of sites."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "vitrail"
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(SITES), figsize=(11, 3.1), sharey=True)
    labels = {
        "site": "at the site",
        "sum": "in the sum, trusted server",
        "distributed": "distributed",
    }
    styles = {"site": ("#b0413e", "s"), "sum": ("#7a7a7a", "^"), "distributed": ("#1f6f8b", "o")}
    for panel, sites in zip(panels, SITES, strict=True):
        plain = next(r for r in rows if r["sites"] == sites and r["where"] == "none")
        panel.axhline(plain["accuracy"], color="black", lw=0.8, ls="--", label="no noise")
        for where in PLACES:
            shown = [
                r
                for r in rows
                if (r["sites"], r["where"]) == (sites, where) and r["accuracy"] >= NEAR_CHANCE
            ]
            color, marker = styles[where]
            x = [r["epsilon"] for r in shown]
            panel.plot(x, [r["accuracy"] for r in shown], color=color, marker=marker, ms=4)
            panel.fill_between(
                x, [r["least"] for r in shown], [r["most"] for r in shown], color=color, alpha=0.15
            )
            panel.plot([], [], color=color, marker=marker, ms=4, label=labels[where])
        panel.set(
            title=f"{sites} sites", xlabel="epsilon of a whole site", xscale="log", ylim=(0.15, 1)
        )
        panel.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        panel.minorticks_off()
    panels[0].set_ylabel("test accuracy")
    panels[0].legend(loc="upper left", fontsize=7, frameon=False, bbox_to_anchor=(0.0, 0.92))
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None, dpi=110)


def main() -> None:
    """Play what is missing of the rows, then draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=Path, default=Path("where-noise.jsonl"))
    words = parser.parse_args()
    text = words.rows.read_text().splitlines() if words.rows.exists() else []
    rows = [json.loads(line) for line in text]
    there = {(r["sites"], r["where"], r["epsilon"]) for r in rows}
    cells = [(n, "none", 0.0) for n in SITES]
    cells += [(n, w, e) for n, w, e in product(SITES, PLACES, EPSILONS)]
    for cell in cells:
        if cell in there:
            continue
        rows.append(play_cell(*cell))
        with words.rows.open("a") as handle:
            handle.write(json.dumps(rows[-1]) + "\n")
        print(json.dumps(rows[-1]), flush=True)
    draw_figure(rows, words.out)


if __name__ == "__main__":
    main()
