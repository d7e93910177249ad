"""How-to: see what sites would share, then let them, under three protections.

    python examples/how_to_share.py

On the embedded birds, in about a minute. See docs/how-to/share-images.md.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import vitrail
from vitrail.config.load import parse
from vitrail.report.preview_sharing import Previewer

CONFIG: dict[str, Any] = {
    "data": {"image_size": 24, "aviary": {"images": 240, "classes": 3}},
    "partition": {"kind": "dirichlet", "alpha": 0.3, "sites": 3},
    "model": {"backbone": "resnet8", "width": 8},
    "run": {"rounds": 6, "seed": 3},
}
PROTECTIONS: dict[str, dict[str, Any]] = {
    "paper": {"sigma": 0.1},
    "local-dp": {"epsilon": 8.0, "clip": 5.0, "group": 4},
    "metric": {"sigma": 0.5},
}


def main() -> None:
    """Preview one site, then run each protection and read a ledger."""
    for name, keys in PROTECTIONS.items():
        config = {**CONFIG, "method": {"name": "fedxds", "protection": name, **keys}}
        seen = next(Previewer(parse(config)).sites())
        print(f"{name}: {seen.site} would share {seen.shared.line['images']} images")
        with tempfile.TemporaryDirectory() as folder:
            run = vitrail.run(config, Path(folder) / "run")
            ledger = Path(folder) / "run" / "sites" / seen.site / "ledger.jsonl"
            lines = [json.loads(line) for line in ledger.read_text().splitlines()]
            told = next(line for line in lines if line["kind"] == "images")
            print(f"  left: {told['bytes']:,} bytes, noise {told['sigma']:.2f}")
            print(f"  {told['guarantee']}")
            print(f"  accuracy {run.curve('accuracy')[-1][1]:.2f}")


if __name__ == "__main__":
    main()
