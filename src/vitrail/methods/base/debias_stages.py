"""A method's stages with the remedies of `[debias]` worked in; no method knows about them."""

from __future__ import annotations

from dataclasses import replace

from vitrail.config.debias_section import OF_PROTOTYPES, Debias
from vitrail.errors import ConfigError, suggest_name
from vitrail.local.phases.phase import Phase
from vitrail.local.phases.remedies import Mask, Mix, Penalize, Remedy, Remember, Retrain
from vitrail.methods.base.stage import Stage
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.models.network import Network

WHERE = "debias.findings"


def add_remedies(
    stages: tuple[Stage, ...], debias: Debias, classes: tuple[str, ...]
) -> tuple[Stage, ...]:
    """The same stages, each with what `mix` adds, and one more for `mask` and `penalize`."""
    if "mix" in debias.remedies:
        stages = tuple(_add_mixing(stage, debias, classes) for stage in stages)
    return (*stages, _make_last_stage(stages[-1], debias)) if debias.last_rounds else stages


def _add_mixing(stage: Stage, debias: Debias, classes: tuple[str, ...]) -> Stage:
    """Sites remember what they trained, and mix it with what comes back in the closing turn."""
    labels = tuple(sorted({classes.index(one.label) for one in debias.findings}))
    mix: tuple[Phase, ...] = (
        Mix(labels, debias.suspected),
        Retrain(debias.epochs, debias.lr),
    )
    return replace(stage, train=(*stage.train, Remember()), finish=(*mix, *stage.last))


def _make_last_stage(before: Stage, debias: Debias) -> Stage:
    """A stage after all others: named prototypes are masked or made to cost."""
    masks: tuple[Phase, ...] = (Mask(debias.units),) if "mask" in debias.remedies else ()
    train: tuple[Phase, ...] = masks
    if "penalize" in debias.remedies:
        train = (*train, Penalize(debias.units, debias.strength), *before.train)
    train = (*train, Retrain(debias.epochs, debias.lr))
    return replace(
        before, name="debias", rounds=debias.rounds, train=train, finish=(*masks, *before.last)
    )


def drop_remedies(stage: Stage) -> Stage:
    """What is left of a stage for a site that trains alone."""

    def plain(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        return tuple(phase for phase in phases if not isinstance(phase, Remedy))

    return replace(stage, train=plain(stage.train), finish=plain(stage.last))


def check_findings(debias: Debias, network: Network, classes: tuple[str, ...]) -> None:
    """Refuse classes and prototypes that this model does not have."""
    for one in debias.findings:
        if one.label not in classes:
            raise ConfigError(
                f"there is no class {one.label!r}",
                where=WHERE,
                hint=suggest_name(one.label, classes),
            )
    of_prototypes = set(debias.remedies) & OF_PROTOTYPES
    if not of_prototypes:
        return
    head = network.head
    if not isinstance(head, ProtoHead):
        raise ConfigError(
            f"{sorted(of_prototypes)[0]!r} needs prototypes, and this model has none",
            where="debias.remedies",
            hint='Use "weigh", "leave-out" or "harmonize".',
        )
    owner = head.owner.tolist()
    for one in debias.findings:
        for unit in one.prototypes:
            _check_unit(unit, one.label, owner, classes)
    left = {label for unit, label in enumerate(owner) if unit not in debias.units}
    for label, name in enumerate(classes):
        if "mask" in debias.remedies and label not in left:
            raise ConfigError(
                f"every prototype of class {name!r} would be masked",
                where=WHERE,
                hint="Leave some, or choose another remedy.",
            )


def _check_unit(unit: int, label: str, owner: list[int], classes: tuple[str, ...]) -> None:
    units = [at for at, label_index in enumerate(owner) if classes[label_index] == label]
    if unit not in units:
        problem = "there is no prototype" if unit >= len(owner) else "no prototype of that class is"
        raise ConfigError(
            f"{problem} {unit}, named for class {label!r}",
            where=WHERE,
            hint=f"Its prototypes are {units[0]} to {units[-1]}.",
        )
