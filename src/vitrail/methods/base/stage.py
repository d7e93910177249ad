"""Stages and tables: a method is data that says who trains what, when, and what travels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from vitrail.errors import ConfigError, suggest_name
from vitrail.local.phases.phase import Fit, Phase
from vitrail.models.parts import KINDS, PARTS, TensorSpec

Table = Mapping[str, str]


@dataclass(frozen=True)
class Stage:
    """Some rounds that are played alike.

    `rounds` None means all that are left of `run.rounds`; `arrive` phases work on what was
    just received, `train` phases before sending; `finish` phases stand for `arrive` in the
    closing turn (None: the same ones); `table` None is the method's own.
    """

    name: str = "train"
    rounds: int | None = None
    sites: Literal["sample", "all"] = "sample"
    arrive: tuple[Phase, ...] = ()
    train: tuple[Phase, ...] = (Fit(),)
    finish: tuple[Phase, ...] | None = None
    table: Table | None = None

    @property
    def trains(self) -> bool:
        """Whether a site makes steps in it, which it then counts."""
        return any(not getattr(phase, "sends", False) for phase in self.train)

    @property
    def last(self) -> tuple[Phase, ...]:
        """The phases of the closing turn."""
        return self.arrive if self.finish is None else self.finish


def resolve_table(specs: Iterable[TensorSpec], table: Table, method: str) -> dict[str, str]:
    """What a table answers for every tensor: a rule, `home` or `frozen`.

    A row names a part, a stage of the backbone (`backbone.layer4`) or a kind; the kind wins over
    the stage, the stage over the part. Frozen stages, batch counters and
    constants never travel, whatever the table says. A tensor without an answer stops the run.
    """
    specs = tuple(specs)
    stages = {f"backbone.{spec.stage}" for spec in specs if spec.stage}
    for row in table:
        if row not in PARTS and row not in KINDS and row not in stages:
            raise ConfigError(
                f"the table of {method} has a row {row!r} that is no part, stage or kind",
                where="method.name",
                hint=suggest_name(row, (*PARTS, *sorted(stages), *KINDS)),
            )
    _check_home(specs, table, method)
    answers: dict[str, str] = {}
    for spec in specs:
        if spec.frozen or spec.kind in ("counter", "constant"):
            answers[spec.name] = "frozen"
            continue
        by_part = table.get(f"backbone.{spec.stage}", table.get(spec.part))
        answer = table.get(spec.kind, by_part)
        if answer is None:
            raise ConfigError(
                f"the table of {method} has no answer for tensor {spec.name!r} "
                f"(part {spec.part}, kind {spec.kind})",
                where="method.name",
                hint="Add a row for that part or kind.",
            )
        answers[spec.name] = answer
    return answers


def _check_home(specs: tuple[TensorSpec, ...], table: Table, method: str) -> None:
    """A kind that stays home must exist, or the run would be another method under this name."""
    kinds = [row for row, answer in table.items() if row in KINDS and answer == "home"]
    if kinds and not any(spec.kind in kinds and not spec.frozen for spec in specs):
        raise ConfigError(
            f"{method} keeps the kinds {' and '.join(kinds)} home, and this model trains none",
            where="model.backbone",
            hint="Choose a backbone with normalization layers, or another method.",
        )


def apply_user_choices(table: Table, *, rule: str, norm: str) -> dict[str, str]:
    """A method's table after the user's choices: `aggregate.rule` stands for its plain means,
    and `model.norm = "home"` keeps normalization layers at their site."""
    resolved = {row: rule if answer == "mean" else answer for row, answer in table.items()}
    if norm == "home":
        resolved |= {"norm": "home", "statistic": "home"}
    return resolved
