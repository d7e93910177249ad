"""FedNova: sites that make more steps do not pull harder."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.local.session import Context, Site
from vitrail.methods.base.method import METHODS, Method, RunSetup


@METHODS.register("fednova")
class FedNova(Method):
    """Changes are divided by the site's effective number of steps before they are averaged.

    With momentum m, tau_k = |a_k|_1 = sum over t of (1 - m^(steps - t)) / (1 - m).
    """

    summary = "changes normalized by the number of local steps"
    paper = "Wang et al. 2020, arXiv:2007.07481"
    table = {
        "backbone": "nova",
        "neck": "nova",
        "prototypes": "nova",
        "head": "nova",
        "statistic": "mean",
    }
    counts = ("tau",)

    def check_run(self, setup: RunSetup) -> None:
        """Refuse optimizers whose steps have no such weights."""
        if setup.optimizer.name != "sgd" or setup.optimizer.weight_decay:
            raise ConfigError(
                "FedNova's normalization is right for SGD without weight decay",
                where="optimizer",
                hint='Use name = "sgd" and weight_decay = 0, or another method.',
            )

    def limits(self, facts: Mapping[str, float], ctx: Context) -> dict[str, float]:
        """No site makes more steps than its images and epochs allow."""
        steps = math.ceil(facts["examples"] / ctx.batch_size) * ctx.epochs
        return {"tau": effective_steps(steps, ctx.optimizer.momentum)}

    def end(self, site: Site, ctx: Context) -> dict[str, Tensor]:
        """Count the effective steps."""
        site.counts["tau"] = effective_steps(site.result.steps, ctx.optimizer.momentum)
        return {}


def effective_steps(steps: int, momentum: float) -> float:
    """|a_k|_1 of FedNova's section 4: the steps themselves without momentum."""
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
