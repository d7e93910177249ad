"""`[[hostile]]`: sites of a simulation that attack the model, as data like everything else."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vitrail.config.section import Count, Positive, Section, Share

Trigger = Literal["patch", "text", "emoji", "border"]


class Hostile(Section):
    """`[[hostile]]`: sites that attack the model; in simulations only."""

    attack: str
    """`vitrail methods --poisoning` lists them."""
    sites: tuple[str | int, ...] = (0,)
    """Site names, or numbers in order."""
    strength: Positive | None = None
    """How hard; what that means, and what it is if left out, is the attack's own."""
    start: Count = 1
    """The first round of the attack. Poisoned images are there from the first one."""
    target: str | int = 0
    """The class that backdoors and thieves work for, a name or a number in order."""
    source: str | int | None = None
    """The class that label-flip relabels as the target, or that is stolen; left out: label-flip
    turns the order of all classes around, a thief takes the class after the target."""
    share: Share = 0.5
    """The share of a hostile site's training images that carry the trigger."""
    trigger: Trigger = "patch"
    """What a backdoor's trigger looks like; text: a letter as in radiographs."""
    size: Annotated[float, Field(gt=0, le=1)] = 0.12
    """The trigger's size as a share of the shorter side."""
    position: tuple[Share, Share] = (0.9, 0.9)
    """The trigger's center as shares of width and height."""
    color: tuple[int, int, int] = (255, 255, 255)
    """The trigger's color."""
