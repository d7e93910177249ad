"""What a run shares: which parts leave a site, how many of how many numbers, how many bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vitrail.engine.plan import Plan, StagePlan
from vitrail.models.flat import Layout
from vitrail.models.parts import PARTS
from vitrail.release.message import Field


@dataclass(frozen=True)
class StageShare:
    """What one site sends in each round of a stage.

    `parts` counts numbers: of the model by part, of what travels beside it by its own name.
    """

    stage: str
    first: int
    rounds: int
    parts: Mapping[str, int]
    bytes_up: int
    bytes_down: int
    whole: tuple[str, ...] = ()  # kept as it comes, as many rows as a site has
    masked: bool = False  # under masks: the server learns the sum over sites only

    @property
    def numbers(self) -> int:
        """How many numbers leave a site in a round."""
        return sum(self.parts.values())

    @property
    def model(self) -> int:
        """How many of them are the model's own."""
        return sum(count for part, count in self.parts.items() if part in PARTS)


@dataclass(frozen=True)
class ReleaseSummary:
    """What a site of a run sends, stage by stage, out of `of` numbers that training changes."""

    of: int
    stages: tuple[StageShare, ...]
    closing_bytes: int  # of the last model, which every site receives
    pooled: bool  # all images are in one place
    always: bool  # every site takes part in every round
    touched: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By defense: how many numbers it may change, by part."""

    @property
    def bytes_up(self) -> int:
        """What a site sends in the whole run if it takes part in every round."""
        return sum(stage.rounds * stage.bytes_up for stage in self.stages)

    @property
    def bytes_down(self) -> int:
        """What a site receives in the whole run, the last model included."""
        return sum(s.rounds * s.bytes_down for s in self.stages) + self.closing_bytes

    def text(self) -> str:
        """One line: numbers a round, bytes in all."""
        if self.pooled:
            return "every image: all are in one place"
        counts = {stage.model for stage in self.stages}
        most = max(counts, default=0)
        beside = max((stage.numbers - stage.model for stage in self.stages), default=0)
        if not most and not beside:
            return f"none of {self.of:,} numbers"
        up_to = "at most " if len(counts) > 1 else ""
        masked = any(stage.masked for stage in self.stages)
        in_all = "" if self.always or masked else "at most "
        whole = dict.fromkeys(name for stage in self.stages for name in stage.whole)
        also = f", and {' and '.join(whole)}" if whole else ""
        return (
            f"{up_to}{most:,} of {self.of:,} numbers ({format_share(most, self.of)}) a round"
            f"{' in a masked sum' if masked else ''}"
            f"{f' and up to {beside:,} beside the model' if beside else ''}, "
            f"{in_all}{format_size(self.bytes_up)} a site in all{also}"
            f"{', more where a sum is tried again' if masked else ''}"
        )

    def lines(self) -> list[str]:
        """A line a stage and a line a defense, for the log."""
        return [self._line(stage) for stage in self.stages] + [
            f"defense {name} may change {sum(parts.values()):,} numbers "
            f"({', '.join(f'{part} {count:,}' for part, count in parts.items()) or 'none'})"
            for name, parts in self.touched.items()
        ]

    def _line(self, stage: StageShare) -> str:
        last = stage.first + stage.rounds - 1
        when = f"round {last}" if stage.rounds == 1 else f"rounds {stage.first} to {last}"
        parts = ", ".join(f"{name} {count:,}" for name, count in stage.parts.items())
        also = f", and {' and '.join(stage.whole)}, which the ledger counts" if stage.whole else ""
        also += ", masked: the server sees the sum only" if stage.masked else ""
        return (
            f"stage {stage.stage}, {when}: {stage.model:,} of {self.of:,} numbers leave a site "
            f"({parts or 'nothing'}), {stage.bytes_up:,} bytes up, "
            f"{stage.bytes_down:,} down a site and round{also}"
        )

    def card(self) -> dict[str, Any]:
        """For `server/card.json`."""
        return {
            "text": self.text(),
            "numbers": self.of,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "touched": {name: dict(parts) for name, parts in self.touched.items()},
            "stages": [
                {
                    "stage": stage.stage,
                    "rounds": stage.rounds,
                    "parts": dict(stage.parts),
                    "numbers": stage.numbers,
                    "share": stage.model / max(1, self.of),
                    "bytes_up": stage.bytes_up,
                    "bytes_down": stage.bytes_down,
                }
                for stage in self.stages
            ],
        }


def summarize_release(plan: Plan) -> ReleaseSummary:
    """What the declarations of a plan let out of a site, and into it."""
    run = plan.config.run
    return ReleaseSummary(
        of=plan.layout.size,
        stages=tuple(_summarize_stage(s, plan.layout) for s in plan.stages if s.last >= s.first),
        closing_bytes=sum(
            f.bytes for f in plan.stages[-1].schema.down if f.name.startswith("model/")
        ),
        pooled=plan.method.pooled,
        always=run.participation == 1 and not run.dropout and run.deadline is None,
        touched={
            defense.name: _count_numbers(set(defense.touches(plan.setting)), plan)
            for defense in plan.defenses()
        },
    )


def _count_numbers(names: set[str], plan: Plan) -> dict[str, int]:
    """How many numbers some tensors of the messages have, by part."""
    fields = {f.name: f for stage in plan.stages for f in stage.schema.up_added if f.name in names}
    return _count_by_part(fields.values(), plan.layout)


def _count_by_part(fields: Iterable[Field], layout: Layout) -> dict[str, int]:
    part = {f"model/{spec.name}": str(spec.part) for spec in layout.specs}
    counts: Counter[str] = Counter()
    for each in fields:
        name = part.get(each.name, each.name.partition("/")[0])
        counts[name] += each.bytes // each.dtype.itemsize
    return dict(counts)


def _summarize_stage(stage: StagePlan, layout: Layout) -> StageShare:
    return StageShare(
        stage.stage.name,
        stage.first,
        stage.last - stage.first + 1,
        _count_by_part(stage.schema.up_added, layout),
        stage.wire.bytes_up,
        stage.wire.bytes_down,
        tuple(dict.fromkeys(f.name.partition("/")[0] for f in stage.schema.up_kept)),
        stage.masked is not None,
    )


def format_share(some: int, of: int) -> str:
    """A share to two digits, or to the whole percent above ten."""
    value = 100 * some / max(1, of)
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def format_size(count: float) -> str:
    """Bytes as a person reads them: 960 B, 38 kB, 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
