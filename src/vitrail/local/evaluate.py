"""Evaluation in fixed chunks, so that the same rows give the same bits wherever they are run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.local.inputs import Inputs, Rows
from vitrail.metrics.classification import compute_classification_metrics
from vitrail.models.heads.head import Outputs
from vitrail.models.heads.part_head import PartHead
from vitrail.models.network import Network

CHUNK = 256


def compute_logits(network: Network, inputs: Inputs, rows: Rows, chunk: int = CHUNK) -> Tensor:
    """Logits [len(rows), classes] of the network in evaluation mode, on the CPU."""
    network.eval()
    chunks = []
    with torch.inference_mode():
        for start in range(0, len(rows), chunk):
            x = inputs.plain(rows[start : start + chunk])
            z = network.prefix(x) if inputs.features is None else x
            chunks.append(network.rest(z)["logits"].cpu())
    return torch.cat(chunks).clone() if chunks else torch.empty(0, 0)


def compute_prefix(
    network: Network, inputs: Inputs, rows: Rows, chunk: int = CHUNK
) -> npt.NDArray[np.float32]:
    """What the frozen stages make of some rows, as `Inputs.features` wants it: one view each."""
    parts = [
        network.prefix(inputs.plain(rows[start : start + chunk]))
        for start in range(0, len(rows), chunk)
    ]
    features: npt.NDArray[np.float32] = torch.cat(parts)[:, None].cpu().numpy()
    return features


@torch.no_grad()
def compute_features(network: Network, inputs: Inputs, rows: Rows, chunk: int = CHUNK) -> Tensor:
    """What the head sees of some rows, [len(rows), ...]: everything before it, computed once."""
    network.backbone.eval()
    network.neck.eval()
    chunks = [
        network.features(network.prefix(x) if inputs.features is None else x)
        for start in range(0, len(rows), chunk)
        for x in (inputs.plain(rows[start : start + chunk]),)
    ]
    if len(chunks) == 1:
        return chunks[0]  # without the copy that `cat` makes
    return torch.cat(chunks) if chunks else torch.empty(0)


@torch.no_grad()
def measure(head: PartHead, z: Tensor, chunk: int = CHUNK) -> Outputs:
    """What the last layer of a head weighs, for maps [N, ...] that are not empty."""
    chunks = [head.measure(z[start : start + chunk]) for start in range(0, len(z), chunk)]
    return {name: torch.cat([part[name] for part in chunks]) for name in chunks[0]}


def evaluate(network: Network, inputs: Inputs, rows: Rows, classes: int) -> dict[str, float | None]:
    """The figures of a network on some rows: loss, accuracy, AUROC and so on."""
    logits = compute_logits(network, inputs, rows) if len(rows) else torch.empty(0, classes)
    return compute_classification_metrics(logits, inputs.labels[rows], classes)
