"""Many sites: seconds of a start-up, a round and a turn, peak memory and open files.

    python benchmarks/many_sites.py [--sites 100 1000 10000] [--rounds 20]

1 % of the sites take part in a round, each with 10 images of 16 px; small-cnn, one worker, one
thread. Every run is a process of its own, and peak is its largest resident size. A turn is a round
divided by the sites in it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMAGES = 10  # a site


def write_images(path: Path, sites: int) -> None:
    """Noise in ten classes."""
    import numpy as np

    draw = np.random.default_rng(7)
    x = draw.integers(0, 256, (sites * IMAGES, 16, 16, 3), np.uint8)
    np.savez(path, x=x, y=np.arange(sites * IMAGES) % 10)


def run_here(method: str, sites: int, rounds: int, folder: Path) -> dict[str, float]:
    """Run here; what it took."""
    began, ends, handles = time.perf_counter(), [], []
    import vitrail.engine.run

    write_images(folder / "images.npz", sites)
    written = time.perf_counter()

    def tick(progress: vitrail.engine.Progress) -> None:  # type: ignore[name-defined]
        if progress.note in ("", "closing"):
            ends.append(time.perf_counter())
            handles.append(len(list(Path("/proc/self/fd").iterdir())))

    config = {
        "data": {"source": "npz", "path": str(folder / "images.npz")},
        "partition": {"sites": sites, "test_fraction": 0.0, "minimum": 1},
        "model": {"backbone": "small-cnn", "width": 16},
        "method": {"name": method},
        "run": {
            "rounds": rounds,
            "participation": 0.01,
            "evaluate_every": rounds + 1,
            "checkpoint_every": 10,
            "local_reference": False,
        },
    }
    vitrail.run(config, folder / "run", on_round=tick)
    played = ends[:rounds]
    a_round = statistics.median(b - a for a, b in itertools.pairwise(played))
    return {
        "startup": played[0] - a_round - written,
        "imports": written - began,
        "round": a_round,
        "turn": a_round / max(1, sites // 100),
        "closing": ends[-1] - played[-1],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "files": max(handles),
    }


def run_in_process(method: str, sites: int, rounds: int) -> dict[str, float]:
    """The same in a fresh process."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, __file__, "--here", method, str(sites), str(rounds), name]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def main() -> None:
    if sys.argv[1:2] == ["--here"]:
        method, sites, rounds, folder = sys.argv[2:]
        print(json.dumps(run_here(method, int(sites), int(rounds), Path(folder))))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    print("| method | sites | start-up | a round | a turn | closing turns | peak | open files |")
    print("|---|---|---|---|---|---|---|---|")
    for method in ("fedavg", "scaffold"):
        for sites in args.sites:
            f = run_in_process(method, sites, args.rounds)
            print(
                f"| {method} | {sites:,} | {f['startup']:.2f} s | {f['round']:.3f} s "
                f"| {1000 * f['turn']:.1f} ms | {f['closing']:.1f} s | {f['peak_mb']:.0f} MB "
                f"| {f['files']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
