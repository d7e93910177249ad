"""What noise on a grid costs a round of dp-sgd, as a share of its processor seconds.

python benchmarks/grid_noise_share.py                 ResNet8 of about 300,000 numbers, 4 sites
python benchmarks/grid_noise_share.py --images 400 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import vitrail
from vitrail.local import per_example


def measure_share(images: int, rounds: int, width: int) -> dict[str, object]:
    """Processor seconds of the rounds, of drawing noise in them, and how many numbers get some."""
    spent, numbers = [0.0], [0]
    draw = per_example.add_noise

    def add_noise(values, *rest):
        began = time.process_time()
        noised = draw(values, *rest)
        spent[0] += time.process_time() - began
        numbers[0] = max(numbers[0], values.numel())
        return noised

    per_example.add_noise = add_noise
    marks = []
    with tempfile.TemporaryDirectory() as scratch:
        vitrail.run(
            {
                "data": {"image_size": 32, "aviary": {"images": images}},
                "partition": {"kind": "iid", "sites": 4},
                "model": {"backbone": "resnet8", "width": width, "norm": "group"},
                "run": {"rounds": rounds + 1, "batch_size": 32, "local_reference": False},
                "release": {
                    "defenses": ["dp-sgd"],
                    "dp-sgd": {"noise": 1.0, "delta": 1e-4},
                },
            },
            Path(scratch) / "run",
            lambda _: marks.append((time.process_time(), spent[0])),
        )
    (begin, before), (end, after) = marks[0], marks[rounds]
    whole, noise = (end - begin) / rounds, (after - before) / rounds
    return {
        "numbers": numbers[0],
        "cpu s a round": round(whole, 3),
        "cpu s of noise": round(noise, 3),
        "share of the round": round(noise / whole, 4),
        "share of the rest": round(noise / (whole - noise), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--width", type=int, default=32)
    words = parser.parse_args()
    print(json.dumps(measure_share(words.images, words.rounds, words.width)))


if __name__ == "__main__":
    main()
