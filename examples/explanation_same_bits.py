"""The same run with one worker and with two ends with the same bits.

python examples/explanation_same_bits.py
"""

import tempfile
from pathlib import Path

import torch

import vitrail

config = {
    "data": {"image_size": 32, "aviary": {"images": 120, "classes": 2}},
    "model": {"backbone": "resnet8", "width": 4},
    "method": {"name": "scaffold"},
    "run": {"rounds": 2, "participation": 0.5},
}

with tempfile.TemporaryDirectory() as folder:
    models = []
    for workers in (1, 2):
        out = Path(folder) / f"workers-{workers}"
        run = vitrail.run(config, out, overrides=(f"run.workers={workers}",))
        models.append(run.model().state_dict())
    same = all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    print("same bits for 1 and 2 workers:", same)
    assert same
