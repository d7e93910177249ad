"""Guidance: which output channels of the convolutions speak for the true class of a few images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vitrail.local.inputs import Rows
from vitrail.local.session import Site
from vitrail.rng import Key

Target = Literal["logit", "loss"]


def draw_guidance_rows(site: Site, key: Key) -> Rows:
    """One random training image of each class that the site has, in the order of classes."""
    draw = key.numpy()
    rows, labels = site.rows.train, site.inputs.labels[site.rows.train]
    chosen = [draw.choice(rows[labels == label]) for label in np.unique(labels)]
    return np.array(chosen, dtype=np.int64)


def compute_importance(
    site: Site, names: Iterable[str], rows: Rows, target: Target = "logit", batch: int = 32
) -> dict[str, Tensor]:
    """How much each output channel of some convolutions matters, by the name of its kernels.

    The mean over the images of |alpha|, alpha the mean over positions of the gradient of the true
    class's logit (or of the cross-entropy) with respect to the channel's output, as in Grad-CAM.
    The trained model is looked at as it is used, in evaluation mode.
    """
    network = site.model.network
    modules = dict(network.named_modules())
    convs = {name: modules[name.removesuffix(".weight")] for name in names}
    totals = {
        name: torch.zeros(site.model.named[name].shape[0], dtype=torch.float64) for name in convs
    }
    network.eval()
    for at in range(0, len(rows) if convs else 0, batch):
        some = rows[at : at + batch]
        x, labels = site.inputs.plain(some), site.inputs.targets(some)
        z = x if site.inputs.features is not None else network.prefix(x)
        with torch.enable_grad(), _record_outputs(convs) as seen:
            logits = network.rest(z)["logits"]
            score = (
                logits.gather(1, labels[:, None]).sum()
                if target == "logit"
                else F.cross_entropy(logits, labels, reduction="sum")
            )
            used = {name: maps for name, maps in seen.items() if maps}
            places = [m for maps in used.values() for m in maps]
            slopes = iter(
                torch.autograd.grad(score, places, allow_unused=True, materialize_grads=True)
            )
        for name, maps in used.items():
            alpha = torch.stack([next(slopes).mean((2, 3)).cpu() for _ in maps]).double().sum(0)
            totals[name] += alpha.abs().sum(0) / len(rows)
    return totals


@contextmanager
def _record_outputs(convs: dict[str, nn.Module]) -> Iterator[dict[str, list[Tensor]]]:
    """The outputs of some modules in the forward passes inside the block."""
    seen: dict[str, list[Tensor]] = {name: [] for name in convs}

    def watch(name: str) -> RemovableHandle:
        return convs[name].register_forward_hook(lambda _m, _i, out: seen[name].append(out))

    handles = [watch(name) for name in convs]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
