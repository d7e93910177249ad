"""Nothing is guessed: what no rule covers is found in the graph of the forward pass and named."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitrail.errors import ConfigError

# Nodes that only move numbers, so that their gradient moves relevance. Torch numbers variants.
_MOVES = (
    "AccumulateGrad",
    "AdaptiveMaxPool2D",
    "Alias",
    "AsStrided",
    "Cat",
    "Clone",
    "ConstantPadNd",
    "MaxPool2DWithIndices",
    "Permute",
    "Reshape",
    "Select",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "T",
    "UnsafeView",
    "Unsqueeze",
    "View",
)
_RULES = ("_Linear", "_Pass", "_Split")


def check_graph(output: Tensor) -> None:
    """Refuse a graph with an operation that is neither a rule's nor a mere move of numbers, and a
    normalization that was folded into a convolution whose bare output is used as well."""
    waiting: list[Any] = [output.grad_fn]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        if node in seen:
            _check_folded(node)
            continue
        seen.add(node)
        kind = type(node).__name__.rstrip("0123456789").removesuffix("Backward")
        if kind not in _MOVES and kind not in _RULES:
            raise ConfigError(
                f"there is no relevance rule for the operation {kind.lower()!r}, which this model "
                "applies outside of its modules",
                where="attribution",
                hint="Make it a module (ReLU, Sum, AdaptiveAvgPool2d), or use another attribution.",
            )
        waiting.extend(before for before, _ in node.next_functions)


def _check_folded(node: Any) -> None:
    """A convolution that is used twice has no normalization of its own."""
    if getattr(getattr(node, "call", None), "folded", False):
        raise ConfigError(
            "there is no relevance rule for a convolution that is normalized in one place and used "
            "in another too",
            where="attribution",
            hint="Use gradient, smoothgrad, integrated-gradients or grad-cam with this model.",
        )
