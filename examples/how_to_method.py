"""A method of one's own, in the same file that runs it: the head stays home, and a pull.

python examples/how_to_method.py
"""

import tempfile
from pathlib import Path

import vitrail
from vitrail.plugin import METHODS, Method, Options, Terms, make_proximal_pull


class PullOptions(Options):
    """`mu` is the strength of the pull."""

    mu: float = 0.1


@METHODS.register("pulled-body")
class PulledBody(Method):
    """FedPer with FedProx's pull on the body."""

    summary = "FedPer with a pull"
    Options = PullOptions
    table = {**Method.table, "head": "home"}

    def begin(self, site, down, ctx):
        """Add mu (w - w_g) to the gradient of what travels."""
        return Terms(pull=(make_proximal_pull(site, self.options.mu),))


with tempfile.TemporaryDirectory() as folder:
    config = {
        "data": {"image_size": 32, "aviary": {"images": 120, "classes": 2}},
        "model": {"backbone": "resnet8", "width": 4},
        "method": {"name": "pulled-body", "mu": 0.05},
        "run": {"rounds": 2},
    }
    run = vitrail.run(config, Path(folder) / "run")
    print("mean accuracy over sites:", run.curve("accuracy"))
    print("site-00's own model:", type(run.model("site-00")).__name__)
