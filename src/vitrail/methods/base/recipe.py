"""Recipes: how a kind of network is trained when the method leaves that open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vitrail.local.optimizer import OptimizerSettings
from vitrail.methods.base.stage import Stage
from vitrail.registry import Registry


@dataclass(frozen=True)
class Recipe:
    """Rates, and the stages for a number of warm-up and of last-layer epochs."""

    optimizer: OptimizerSettings
    stages: Callable[[int, int], tuple[Stage, ...]]
    reference: bool = False  # whether an audit makes sense


RECIPES: Registry[Recipe] = Registry("model", "method.model")
RECIPES.register("linear")(Recipe(OptimizerSettings(), lambda *_: (Stage(),)))
