"""Estimates of epsilon from canary sites of client-dp, by where the noise is added; drawn images.

    python -m experiments.tables.canary_sites

An estimate is what one adversary sees, not a bound (Andrew et al. 2023, arXiv:2302.03098).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import vitrail
from vitrail.attack.membership.site_canary import estimate_from_sites
from vitrail.attack.run_view import RunView
from vitrail.release.accounting.accountant import Event, compute_epsilon

WHERES = ("site", "sum", "distributed")
DELTA = 1e-3


def make_config(where: str, sites: int, rounds: int, noise: float, seed: int) -> dict[str, Any]:
    """A run in which every site is a canary: what sites train does not matter."""
    return {
        "run": {
            "seed": seed,
            "rounds": rounds,
            "record_updates": True,
            "local_reference": False,
            "batch_size": 8,
            "device": "cpu",
        },
        "data": {"image_size": 16, "aviary": {"images": 8 * sites, "classes": 3}},
        "partition": {"kind": "iid", "sites": sites, "minimum": 4},
        "model": {"backbone": "small-cnn", "width": 8, "norm": "group"},
        "method": {"name": "fedavg"},
        "release": {
            "defenses": ["client-dp"],
            "secure_sum": where == "distributed",
            "client-dp": {"noise": noise, "delta": DELTA, "canary_sites": 1.0, "where": where},
        },
    }


def main() -> None:
    """Print the accounted epsilon, then one estimate for each place of the noise and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--noise", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    asked = parser.parse_args()
    accounted = compute_epsilon([Event(asked.noise, 1.0, asked.rounds)], DELTA)
    print(f"accounted: {accounted:.2f} at delta {DELTA:g}")
    for seed in asked.seeds:
        for where in WHERES:
            with tempfile.TemporaryDirectory() as folder:
                config = make_config(where, asked.sites, asked.rounds, asked.noise, seed)
                run = vitrail.run(config, Path(folder) / "run")
                told = estimate_from_sites(RunView(run)).estimate
            print(f"{where}, seed {seed}: {told.epsilon:.2f} ({told.low:.2f} to {told.high:.2f})")


if __name__ == "__main__":
    main()
