"""Are the networks here the ones Vitrail trains? Run with Vitrail's own environment.

python benchmarks/peers/check_same.py
"""

from __future__ import annotations

import sys

import torch

import models
from vitrail.models import build as build_vitrail


def find_difference(name: str) -> str:
    """An empty text, or what differs between the two definitions."""
    theirs, ours = models.build(name), build_vitrail(name, classes=10, in_channels=3)
    left = {k: tuple(v.shape) for k, v in theirs.state_dict().items()}
    right = {k: tuple(v.shape) for k, v in ours.state_dict().items()}
    if left != right:
        return f"tensors differ: {sorted(left.items() ^ right.items())}"
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    y = torch.arange(8)
    for training in (True, False):
        outputs, gradients = [], []
        for model in (theirs.train(training), ours.train(training)):
            model.zero_grad()
            logits = model(x)
            torch.nn.functional.cross_entropy(logits, y).backward()
            outputs.append(logits.detach())
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        if not torch.allclose(*outputs, rtol=1e-5, atol=1e-6):
            return f"outputs differ by {(outputs[0] - outputs[1]).abs().max():.1e}"
        if not torch.allclose(*gradients, rtol=1e-4, atol=1e-6):
            return f"gradients differ by {(gradients[0] - gradients[1]).abs().max():.1e}"
    return ""


def main() -> None:
    """Print one line for each network; exit with 1 if any differs."""
    problems = {name: find_difference(name) for name in models.MODELS}
    for name, problem in problems.items():
        count = sum(p.numel() for p in models.build(name).parameters())
        print(f"{name}: {problem or f'the same network, {count} parameters'}")
    sys.exit(any(problems.values()))


if __name__ == "__main__":
    main()
