"""Accuracy against epsilon by where the noise of site-level privacy is added.

    python -m experiments.tables.where_noise --out docs/figures/where-noise.png

Digits of scikit-learn (1,797 images of 8 x 8), 1,200 of them dealt out evenly over 8, 32, 100 or
300 sites; 20 rounds, all sites in each. Two models: a linear classifier (650 numbers, `client-dp`)
and FedGraSP's subspaces (10 classes, p = 3, 1,920 numbers, `subspace-dp` with a clip; beside it
whole projectors in the sum). Noise at the site, in the sum by a trusted server, distributed over
the sites (nobody colludes), or none. Clip and learning rate are chosen for each cell alike, by
accuracy on validation images under a seed of its own; the test images are looked at once, over 5
other seeds. Noise is calibrated and drawn by the code of the package, once for the sum: shares of
discrete Gaussians add up to one but for 1e-17000. Masks are left out, because they come off to the
last bit. Rows are kept in `--rows`, so that a table that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.figures.where_noise_figure import draw_figure
from experiments.tables.noise_learners import (
    Learner,
    Linear,
    Part,
    Projectors,
    Steps,
    deal,
    load_digits,
)
from vitrail.grid_noise import add_noise
from vitrail.release.accounting.accountant import AccountantName, Event, calibrate_noise
from vitrail.rng import Key, derive_server_key
from vitrail.secure_aggregation.fixed_point import from_fixed, to_fixed
from vitrail.secure_aggregation.graph import compute_threshold
from vitrail.secure_aggregation.shared_noise import SharedNoise

LEARNERS: dict[str, Learner] = {
    "linear": Linear(),
    "subspaces": Steps(),
    "projectors": Projectors(),
}
PLACES = {
    "linear": ("site", "sum", "distributed"),
    "subspaces": ("site", "sum", "distributed"),
    "projectors": ("sum",),
}
SITES = (300, 100, 32, 8)
EPSILONS = (4.0, 1.0, 16.0, 2.0, 8.0)
CLIPS, RATES = (0.1, 0.3, 1.0, 3.0), (0.5, 2.0)
ROUNDS, DELTA = 20, 1e-4
TUNING_SEED, SEEDS = 0, (1, 2, 3, 4, 5)


def train(
    learner: Learner,
    part: Part,
    sites: int,
    where: str,
    noise: float,
    clip: float,
    rate: float,
    key: Key,
) -> Tensor:
    """The global model after all rounds."""
    x, y = deal(part, sites)
    model = learner.start(key.at("start"))
    deviation = noise * learner.sensitivity(clip)
    for round_ in range(ROUNDS):
        total = learner.add_up(model, x, y, rate, None if where == "none" else clip)
        total = disturb(total, sites, where, deviation, key.at(round_))
        model = learner.move(model, total / sites)
    return model


def disturb(total: Tensor, sites: int, where: str, deviation: float, key: Key) -> Tensor:
    """The sum over sites with its noise: of every site, of the server, or of shares."""
    if where == "none":
        return total
    if where == "distributed":
        share = SharedNoise(deviation * math.sqrt(sites), 0, [(0, total.numel())], key)
        words = share.add(to_fixed(total.reshape(-1), 1), compute_threshold(sites))
        return from_fixed(words).view(total.shape)
    spread = deviation * (math.sqrt(sites) if where == "site" else 1.0)
    return add_noise(total, spread, key.stream())


def calibrate(where: str, epsilon: float) -> float:
    """Noise over sensitivity of a round."""
    how: AccountantName = "rdp" if where == "distributed" else "pld"
    if where == "none":
        return 0.0
    return calibrate_noise(epsilon, DELTA, (Event(1.0, times=ROUNDS),), how)


def play_cell(model: str, sites: int, where: str, epsilon: float) -> dict[str, Any]:
    """One point of the figure: clip and rate by validation images, then the test images."""
    learner, noise = LEARNERS[model], calibrate(where, epsilon)

    def play(clip: float, rate: float, seed: int) -> tuple[float, float]:
        parts = load_digits(seed)
        key = derive_server_key(seed).at(model, where, sites, epsilon, clip, rate)
        trained = train(learner, parts[0], sites, where, noise, clip, rate, key)
        return learner.score(trained, parts[1]), learner.score(trained, parts[2])

    clips = CLIPS if where != "none" and learner.clips else CLIPS[:1]
    best = max(product(clips, RATES), key=lambda c: play(c[0], c[1], TUNING_SEED)[0])
    tests = torch.tensor([play(best[0], best[1], seed)[1] for seed in SEEDS])
    return {
        "model": model,
        "sites": sites,
        "where": where,
        "epsilon": epsilon,
        "clip": best[0] if len(clips) > 1 else None,
        "rate": best[1],
        "accuracy": round(float(tests.mean()), 3),
        "least": round(float(tests.min()), 3),
        "most": round(float(tests.max()), 3),
        "noise": round(noise, 4),
        "sites_needed": learner.count_sites(noise) if noise else None,
    }


def list_cells() -> list[tuple[str, int, str, float]]:
    """All cells, those first that say most."""
    cells = [(m, n, "none", 0.0) for n, m in product(SITES, LEARNERS)]
    return cells + [
        (m, n, w, e) for e, n, m in product(EPSILONS, SITES, LEARNERS) for w in PLACES[m]
    ]


def main() -> None:
    """Play what is missing of the rows, then draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=Path, default=Path("where-noise.jsonl"))
    words = parser.parse_args()
    torch.set_num_threads(1)
    text = words.rows.read_text().splitlines() if words.rows.exists() else []
    rows = [json.loads(line) for line in text]
    there = {(r["model"], r["sites"], r["where"], r["epsilon"]) for r in rows}
    for cell in list_cells():
        if cell in there:
            continue
        rows.append(play_cell(*cell))
        with words.rows.open("a") as handle:
            handle.write(json.dumps(rows[-1]) + "\n")
        print(json.dumps(rows[-1]), flush=True)
    draw_figure(rows, words.out)


if __name__ == "__main__":
    main()
