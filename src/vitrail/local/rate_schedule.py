"""How the learning rate changes from round to round."""

from __future__ import annotations

import math

from vitrail.config.schema import Optimizer


def compute_rate_share(optimizer: Optimizer, round_: int, rounds: int) -> float:
    """What the learning rate of a round is multiplied with, from 1 in round 1.

    `cosine` and `linear` come to `final_share` in the last round of the run; `step` multiplies by
    `step_share` after every `step_rounds` rounds, whatever the length of the run.
    """
    if optimizer.schedule == "constant":
        return 1.0
    if optimizer.schedule == "step":
        return float(optimizer.step_share ** ((round_ - 1) // optimizer.step_rounds))
    way = min(1.0, (round_ - 1) / (rounds - 1)) if rounds > 1 else 0.0
    left = (1 + math.cos(math.pi * way)) / 2 if optimizer.schedule == "cosine" else 1 - way
    return optimizer.final_share + (1 - optimizer.final_share) * left
