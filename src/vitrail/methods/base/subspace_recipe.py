"""The recipes of networks with subspaces: which parts train when, at which rates."""

from __future__ import annotations

from dataclasses import replace

import vitrail.local.riemannian_steps  # noqa: F401  (registers the steps of frames)
from vitrail.local.optimizer import OptimizerSettings
from vitrail.methods.base.prototype_recipe import ADAM, JOINT, make_last_phase, make_warm_phase
from vitrail.methods.base.recipe import RECIPES, Recipe
from vitrail.methods.base.stage import Stage

# Frames take Riemannian steps, whose rate has nothing to do with Adam's.
RIEMANNIAN_ADAM = replace(ADAM, momentum=0.9, parts={**ADAM.parts, "prototypes": (0.01, 0.0)})
SUBSPACES = OptimizerSettings(
    name="adam",
    lr=1e-3,
    momentum=0.0,
    parts={"backbone": (1e-4, 1e-3), "prototypes": (0.5, 0.0)},
)


def make_basis_stages(warm_epochs: int, last_epochs: int) -> tuple[Stage, ...]:
    """TesNet: warm up, then train jointly and tune the last layer in every round."""
    train = (JOINT, make_last_phase(last_epochs))
    return (
        Stage("warm", rounds=1, train=(make_warm_phase(warm_epochs),)),
        Stage("joint", train=train),
    )


def make_subspace_stages(warm_epochs: int, last_epochs: int) -> tuple[Stage, ...]:
    """FedGraSP: one stage, in which G stays the identity."""
    del warm_epochs, last_epochs
    return (Stage(train=(JOINT,)),)


RECIPES.register("tesnet")(Recipe(ADAM, make_basis_stages, reference=True))
RECIPES.register("tesnet-stiefel")(Recipe(RIEMANNIAN_ADAM, make_basis_stages, reference=True))
RECIPES.register("fedgrasp")(Recipe(SUBSPACES, make_subspace_stages, reference=True))
