"""FedDISCO: sites whose labels are skewed count less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vitrail.config.section import NonNegative
from vitrail.methods.base.method import METHODS, Method, Options, Roster


class DiscoOptions(Options):
    """`a` weighs the discrepancy, `b` lifts every site."""

    a: NonNegative = 0.5
    b: NonNegative = 0.1


@METHODS.register("feddisco")
class FedDISCO(Method):
    """Weights relu(n_k/n - a d_k + b), d_k the L2 distance of the label shares from uniform.

    Each site tells the server d_k once, which discloses how skewed its labels are.
    """

    summary = "sites with skewed labels count less"
    paper = "Ye et al. 2023, arXiv:2305.19229"
    Options = DiscoOptions

    def facts(self, labels: npt.NDArray[np.int64], classes: int) -> dict[str, float]:
        """The number of examples and the discrepancy of the label histogram."""
        shares = np.bincount(labels, minlength=classes) / max(1, len(labels))
        distance = float(np.linalg.norm(shares - 1.0 / classes))
        return {**super().facts(labels, classes), "discrepancy": distance}

    def weights(self, roster: Roster, sites: Sequence[str]) -> dict[str, float]:
        """relu(n_k/n - a d_k + b); plain n_k if that leaves nobody."""
        total = sum(roster[site]["examples"] for site in sites)
        weights = {
            site: max(
                0.0,
                roster[site]["examples"] / total
                - self.options.a * roster[site]["discrepancy"]
                + self.options.b,
            )
            for site in sites
        }
        return weights if any(weights.values()) else super().weights(roster, sites)
