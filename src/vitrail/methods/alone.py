"""The two ends of the scale: every site alone, and all images in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from vitrail.config import schema
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.recipe import RECIPES
from vitrail.methods.base.stage import Stage

Epochs = Annotated[int, Field(ge=1)]


class ModelOptions(Options):
    """`model` is the kind of network: linear, or one that explains itself by parts.

    Those have epochs of their own: `warm_epochs` for the add-on layers and prototypes first,
    `last_epochs` for the last layer after each push.
    """

    model: str = "linear"
    warm_epochs: Epochs = 5
    last_epochs: Epochs = 12


class _AnyModel(Method):
    """A method that trains whatever network is named, by that network's own recipe."""

    Options = ModelOptions

    def __init__(self, options: Mapping[str, Any], source: str = "config") -> None:
        super().__init__(options, source)
        self.recipe = RECIPES[self.model]
        self.optimizer = self.recipe.optimizer

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """The recipe's stages."""
        del run
        return self.recipe.stages(self.options.warm_epochs, self.options.last_epochs)


@METHODS.register("local")
class Local(_AnyModel):
    """Every site trains alone on the same budget; no model ever leaves it."""

    summary = "every site alone; nothing leaves it"
    paper = "the lower reference of every comparison"
    table = {"backbone": "home", "neck": "home", "prototypes": "home", "head": "home"}


@METHODS.register("centralized")
class Centralized(_AnyModel):
    """All training images in one place: what a federation gives up."""

    summary = "all images in one place"
    paper = "the upper reference of every comparison"
    pooled = True
