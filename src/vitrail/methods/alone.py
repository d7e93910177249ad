"""The two ends of the scale: every site alone, and all images in one place."""

from vitrail.methods.method import METHODS, Method, Options


class ModelOptions(Options):
    """`model` is the kind of network: linear, or a prototype network."""

    model: str = "linear"


@METHODS.register("local")
class Local(Method):
    """Every site trains alone on the same budget; no model ever leaves it."""

    summary = "every site alone; nothing leaves it"
    paper = "the lower reference of every comparison"
    Options = ModelOptions
    table = {"backbone": "home", "neck": "home", "prototypes": "home", "head": "home"}


@METHODS.register("centralized")
class Centralized(Method):
    """All training images in one place: what a federation gives up."""

    summary = "all images in one place"
    paper = "the upper reference of every comparison"
    Options = ModelOptions
    pooled = True
