"""The recipe of prototype networks: which parts train when, at which rates."""

from __future__ import annotations

from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases import Fit, Phase
from vitrail.local.prune import Prune
from vitrail.local.push import Push
from vitrail.methods.recipe import RECIPES, Recipe
from vitrail.methods.stage import Stage

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


def warm(epochs: int) -> Fit:
    """Add-on layers and prototypes only."""
    return Fit("warm", ("neck", "prototypes"), epochs)


def last(epochs: int) -> Fit:
    """The last layer only, which moves nowhere else."""
    return Fit("last", ("head",), epochs)


def grounded(warm_epochs: int, last_epochs: int, *, prune: bool = False) -> tuple[Stage, ...]:
    """Warm up, train jointly, and from then on push and tune the last layer on arrival."""
    after: tuple[Phase, ...] = (Push(), last(last_epochs))
    end = (Push(), Prune(), last(last_epochs)) if prune else after
    return (
        Stage("warm", rounds=1, train=(warm(warm_epochs),), finish=end),
        Stage("joint", rounds=1, train=(JOINT,), finish=end),
        Stage("push", arrive=after, train=(JOINT,), finish=end),
    )


RECIPES.register("protopnet")(Recipe(ADAM, grounded, reference=True))
