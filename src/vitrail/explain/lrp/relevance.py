"""Layer-wise relevance propagation: epsilon on dense layers, z+ on convolutions, flat on the first.

The rules are those of zennit's EpsilonPlusFlat composite with merged BatchNorm (Anders et al.
2021, arXiv:2106.13200): averages and residual sums share in proportion, activations pass
relevance on, max pooling gives it to the winner. Relevance starts as 1 at the class in question,
or as its logit; the maps differ by that factor alone. What biases speak for stays with them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.explain.attribution import ATTRIBUTIONS, Settings, compute_logits
from vitrail.explain.lrp.graph_check import check_graph
from vitrail.explain.lrp.layer_rules import propagate_relevance
from vitrail.models.heads.head import LinearHead
from vitrail.models.network import Network


@ATTRIBUTIONS.register("lrp")
def lrp(model: nn.Module, x: Tensor, targets: Tensor, settings: Settings, at: int) -> Tensor:
    """Relevance of each pixel for its image's class, channels summed; one pass, no noise."""
    del at
    if isinstance(model, Network) and not isinstance(model.head, LinearHead):
        raise ConfigError(
            f"there is no relevance rule for the head {type(model.head).__name__}",
            where="attribution",
            hint="Its parts explain themselves: `vitrail explain`. Else use another attribution.",
        )
    x = x.requires_grad_()
    with propagate_relevance(model):
        logits = compute_logits(model, x)
    check_graph(logits)
    start = F.one_hot(targets, logits.shape[1]).to(logits)
    if settings.start == "logit":
        start = start * logits.detach()
    return torch.autograd.grad(logits, x, start)[0].sum(1)
