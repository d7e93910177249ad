"""Latency of cover-and-ask at 224 pixels, start-up beyond torch, memory over 1,000 asks.

python benchmarks/live.py
"""

import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

IMAGES, SIDE, ASKS = 120, 224, 1000
CONFIG = {
    "data": {"image_size": SIDE, "aviary": {"images": IMAGES, "classes": 5, "seed": 1}},
    "partition": {"kind": "iid", "sites": 2},
    "model": {"backbone": "efficientnet-lite0", "weights": "imagenet", "frozen": True},
    "method": {"name": "fedgrasp"},
    "run": {"rounds": 1, "local_epochs": 1, "device": "cpu", "seed": 1},
}


def read_memory():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    from vitrail.live.application import make_application
    from vitrail.live.catalog import Catalog
    from vitrail.live.guard import Access

    imports = time.perf_counter() - began
    import vitrail

    with tempfile.TemporaryDirectory() as folder:
        run = vitrail.run(CONFIG, Path(folder) / "run")
        began = time.perf_counter()
        make_application(Catalog([Path(folder)]), Access("127.0.0.1", 8080))
        print(f"start-up beyond torch    {imports + time.perf_counter() - began:.2f} s")
        draw = np.random.default_rng(0)
        image = draw.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        run.ask(image, calibrated=False)
        times, memory = [], []
        for n in range(ASKS):
            x, y = draw.integers(0, SIDE - 40, 2).tolist()
            began = time.perf_counter()
            run.ask(image, cover=[(x, y, x + 40, y + 40)], calibrated=False)
            times.append(1000 * (time.perf_counter() - began))
            if n % 100 == 99:
                memory.append(read_memory())
        ordered = sorted(times)
        print(f"cover and ask, {SIDE} px   median {statistics.median(times):.0f} ms, "
              f"95th percentile {ordered[int(0.95 * ASKS)]:.0f} ms, n = {ASKS}")  # fmt: skip
        print(f"memory after 100 asks    {memory[0]:.0f} MB, after {ASKS}: {memory[-1]:.0f} MB")


if __name__ == "__main__":
    main()
