"""The benchmark's work done by Vitrail: same sites, images, steps and model as `peers/`.

python benchmarks/ours.py --model small-cnn --rounds 20 --workers 2
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import numpy as np
import work

import vitrail


def write_images(path: Path) -> None:
    """The peers' images as the 8-bit pixels Vitrail keeps."""
    x, y = work.make_images()
    pixels = x.mul_(48).add_(127.5).clamp_(0, 255).byte().permute(0, 2, 3, 1).contiguous().numpy()
    np.savez(path, x=pixels, y=y.numpy())


def main() -> None:
    args = work.parse_arguments(workers={"type": int, "default": 1})
    clock = work.Clock()
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder) / "images.npz")
        width = {"small-cnn": 32, "resnet8": 16}[args.model]
        config = {
            "data": {"source": "npz", "path": str(Path(folder) / "images.npz")},
            "partition": {"sites": work.SITES, "test_fraction": 0.0},
            "model": {"backbone": args.model, "width": width},
            "optimizer": {"lr": work.RATE},
            "run": {
                "rounds": args.rounds,
                "batch_size": work.BATCH,
                "participation": work.SITES_A_ROUND / work.SITES,
                "evaluate_every": args.rounds,
                "checkpoint_every": args.rounds,
                "workers": args.workers,
            },
        }
        run = vitrail.run(
            config, Path(folder) / "run", on_round=lambda p: None if p.note else clock.tick()
        )
        final = next(
            (r["train_loss"] for r in reversed(run.rows()) if r.get("train_loss") is not None), 0.0
        )
    work.report(args, clock, final, system=f"vitrail, {args.workers} worker(s)")


if __name__ == "__main__":
    main()
