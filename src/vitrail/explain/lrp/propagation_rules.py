"""Rules of layer-wise relevance propagation: how a linear layer hands relevance to its inputs.

A rule is data: a few (input, weight, bias) triples made from the real ones. With z the sum of the
layer's outputs over the triples, an input gets x * d<z, R / z>/dx, summed over the triples
(Bach et al. 2015, doi:10.1371/journal.pone.0130140; Montavon et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-6

Change = Callable[[Tensor], Tensor]
Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # input, weight, bias -> output


def stabilize(z: Tensor, epsilon: float = EPSILON) -> Tensor:
    """z moved away from zero by `epsilon`, to the side it is on; zero counts as positive."""
    return z + torch.where(z < 0, -epsilon, epsilon).to(z)


def _same(x: Tensor) -> Tensor:
    return x


def _positive(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def _negative(x: Tensor) -> Tensor:
    return x.clamp(max=0)


@dataclass(frozen=True)
class Triple:
    """What is made of the input, the weight and the bias; no bias where `bias` is None."""

    input: Change
    weight: Change
    bias: Change | None


@dataclass(frozen=True)
class Rule:
    """A propagation rule by the triples it adds up."""

    name: str
    triples: tuple[Triple, ...]


# R_i = sum_j x_i w_ij / (z_j + eps sign z_j) R_j: the bias keeps its share b_j / z_j.
EPSILON_RULE = Rule("epsilon", (Triple(_same, _same, _same),))
# Only what speaks for the output: (x+, w+, b+) and (x-, w-).
Z_PLUS = Rule("z+", (Triple(_positive, _positive, _positive), Triple(_negative, _negative, None)))
# Every input of a window gets the same.
FLAT = Rule("flat", (Triple(torch.ones_like, torch.ones_like, None),))


def propagate(
    rule: Rule,
    relevance: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    layer: Linear,
) -> Tensor:
    """The relevance of a linear layer's input from that of its output."""
    inputs, outputs = [], []
    with torch.enable_grad():
        for triple in rule.triples:
            # Behind a ReLU nothing is negative, and half of the work falls away.
            if triple.input is _negative and not bool((x < 0).any()):
                continue
            part = triple.input(x.detach()).requires_grad_()
            shift = None if triple.bias is None or bias is None else triple.bias(bias)
            inputs.append(part)
            outputs.append(layer(part, triple.weight(weight), shift))
    shares = relevance / stabilize(torch.stack(outputs).sum(0) if len(outputs) > 1 else outputs[0])
    slopes = torch.autograd.grad(outputs, inputs, [shares] * len(outputs))
    below = inputs[0].detach() * slopes[0]
    for part, slope in zip(inputs[1:], slopes[1:]):
        below = below + part.detach() * slope
    return below
