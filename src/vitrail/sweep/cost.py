"""What a run cost: images that steps saw, at the sites and at the server, time, and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from vitrail.engine.federation import SERVER
from vitrail.engine.release_summary import format_size
from vitrail.runs.opened_run import Run


@dataclass(frozen=True)
class Cost:
    """Figures of one run, or their mean over some.

    `image_steps` counts an image as often as a step took a gradient of it: a site's own, shared,
    public and generated ones. SAM's second pass and generated features are not counted. It is 0
    where no site tells, as behind a formal mechanism.
    """

    rounds: float
    image_steps: float
    seconds: float  # a round, at whatever else the machine did
    bytes_up: float  # a round, of all its sites
    bytes_down: float

    def text(self) -> str:
        """One line."""
        steps = f"{self.image_steps:,.0f} image-steps in " if self.image_steps else ""
        return (
            f"{steps}{self.rounds:g} rounds; a round {self.seconds:.1f} s, "
            f"{format_size(self.bytes_up)} up, {format_size(self.bytes_down)} down"
        )


def compute_cost(run: Run) -> Cost:
    """What a run cost, from its metrics."""
    rows = run.rows()
    played = [row for row in rows if row["site"] == SERVER and row.get("accepted") is not None]
    count = max(1, len(played))

    def total(figure: str, of: list[dict[str, object]]) -> float:
        values = (row.get(figure) for row in of)
        return float(sum(value for value in values if isinstance(value, int | float)))

    return Cost(
        rounds=len(played),
        image_steps=total("image_steps", rows),
        seconds=total("seconds", played) / count,
        bytes_up=total("bytes_up", played) / count,
        bytes_down=total("bytes_down", played) / count,
    )


def compute_mean_cost(costs: Sequence[Cost]) -> Cost:
    """The mean over the repeats of one row."""
    return Cost(*(sum(values) / len(costs) for values in zip(*map(astuple, costs), strict=True)))
