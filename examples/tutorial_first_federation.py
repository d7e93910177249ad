"""The tutorial as a script: train a federation, look at its figures, use its model.

python examples/tutorial_first_federation.py
"""

import tempfile
from pathlib import Path

import torch

import vitrail

config = {
    "data": {"image_size": 32, "aviary": {"images": 240, "classes": 3}},
    "partition": {"kind": "dirichlet", "sites": 3, "alpha": 1.0},
    "model": {"backbone": "resnet8", "width": 8},
    "method": {"name": "fedavg"},
    "run": {"rounds": 3, "seed": 1},
}

with tempfile.TemporaryDirectory() as folder:
    run = vitrail.run(config, Path(folder) / "run", on_round=print)
    print("accuracy by round:", run.curve("accuracy"))
    model = run.model()
    pixels = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    print(dict(zip(model.classes, model.probabilities(pixels)[0].tolist())))
