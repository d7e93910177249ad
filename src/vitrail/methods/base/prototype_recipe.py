"""The recipe of prototype networks: which parts train when, at which rates."""

from __future__ import annotations

from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases.phase import Fit, Phase
from vitrail.local.phases.prune_prototypes import Prune
from vitrail.local.phases.push import Push
from vitrail.methods.base.recipe import RECIPES, Recipe
from vitrail.methods.base.stage import Stage

# Chen et al. 2019: Adam, small steps for what was trained before, no decay on prototypes.
ADAM = OptimizerSettings(
    name="adam",
    lr=1e-4,
    parts={
        "backbone": (1e-4, 1e-3),
        "neck": (3e-3, 1e-3),
        "prototypes": (3e-3, 0.0),
        "head": (1e-4, 0.0),
    },
)

JOINT = Fit("joint", ("backbone", "neck", "prototypes"))


def make_warm_phase(epochs: int) -> Fit:
    """Add-on layers and prototypes only."""
    return Fit("warm", ("neck", "prototypes"), epochs)


def make_last_phase(epochs: int) -> Fit:
    """The last layer only, which moves nowhere else."""
    return Fit("last", ("head",), epochs)


def make_prototype_stages(
    warm_epochs: int, last_epochs: int, *, prune: bool = False
) -> tuple[Stage, ...]:
    """Warm up, train jointly, and from then on push and tune the last layer on arrival."""
    after: tuple[Phase, ...] = (Push(), make_last_phase(last_epochs))
    end = (Push(), Prune(), make_last_phase(last_epochs)) if prune else after
    return (
        Stage("warm", rounds=1, train=(make_warm_phase(warm_epochs),), finish=end),
        Stage("joint", rounds=1, train=(JOINT,), finish=end),
        Stage("push", arrive=after, train=(JOINT,), finish=end),
    )


RECIPES.register("protopnet")(Recipe(ADAM, make_prototype_stages, reference=True))
