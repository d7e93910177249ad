"""Peak memory with 10 and with 1,000 sites over the same images, and its growth over rounds.

    python benchmarks/memory.py

Each run is a process of its own with one worker; peak is its largest resident size.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))


def run_here(method: str, sites: int, rounds: int, folder: Path) -> dict[str, float]:
    """Run here and report the peak and how resident memory grew after the first 20 rounds."""
    import vitrail

    sizes: list[float] = []

    def resident(progress: vitrail.engine.Progress) -> None:  # type: ignore[name-defined]
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        if not progress.note:
            sizes.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

    config = {
        "data": {"source": "npz", "path": str(folder / "images.npz")},
        "partition": {"sites": sites, "test_fraction": 0.0, "minimum": 1},
        "model": {"backbone": "small-cnn", "width": 32},
        "method": {"name": method},
        "run": {
            "rounds": rounds,
            "participation": 10 / sites,
            "evaluate_every": rounds,
            "checkpoint_every": 10,
            "local_epochs": 1,
        },
    }
    vitrail.run(config, folder / "run", on_round=resident)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = min(20, len(sizes) // 2)
    growth = (sizes[-1] - sizes[start]) / max(1, len(sizes) - 1 - start)
    return {"peak_mb": peak, "growth_mb_per_round": growth}


def run_in_process(method: str, sites: int, rounds: int) -> dict[str, float]:
    """The same in a fresh process."""
    with tempfile.TemporaryDirectory() as name:
        from ours import write_images

        folder = Path(name)
        write_images(folder / "images.npz")
        command = [sys.executable, __file__, method, str(sites), str(rounds), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        sizes: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return sizes


def main() -> None:
    if len(sys.argv) > 1:
        method, sites, rounds, folder = sys.argv[1:]
        print(json.dumps(run_here(method, int(sites), int(rounds), Path(folder))))
        return
    for method in ("fedavg", "scaffold"):
        # The same images a round: 10 sites of 1,000 images train as long as 1,000 sites of 10.
        few, many = run_in_process(method, 10, 3), run_in_process(method, 1000, 30)
        ratio = many["peak_mb"] / few["peak_mb"]
        print(
            f"{method}: peak {few['peak_mb']:.0f} MB with 10 sites, "
            f"{many['peak_mb']:.0f} MB with 1,000; ratio {ratio:.3f}"
        )
    for method in ("fedavg", "scaffold"):
        long = run_in_process(method, 1000, 300)
        print(
            f"{method}: {long['growth_mb_per_round']:.4f} MB a round over 300 rounds, 1,000 sites"
        )


if __name__ == "__main__":
    main()
