"""A method's stages with the remedies of `[debias]` worked in; no method knows about them."""

from __future__ import annotations

from dataclasses import replace

from vitrail.config.debias import Debias
from vitrail.errors import ConfigError, nearest
from vitrail.local.phases import Phase
from vitrail.local.remedies import Mask, Mix, Penalize, Remedy, Remember, Retrain
from vitrail.methods.stage import Stage
from vitrail.models.network import Network
from vitrail.models.protopnet import ProtoHead

WHERE = "debias.findings"


def remedied(
    stages: tuple[Stage, ...], debias: Debias, classes: tuple[str, ...]
) -> tuple[Stage, ...]:
    """The same stages, each with what `mix` adds, and one more for `mask` and `penalize`."""
    if "mix" in debias.remedies:
        stages = tuple(_mixing(stage, debias, classes) for stage in stages)
    return (*stages, _last(stages[-1], debias)) if debias.last_rounds else stages


def _mixing(stage: Stage, debias: Debias, classes: tuple[str, ...]) -> Stage:
    """Sites remember what they trained, and mix it with what comes back in the closing turn."""
    labels = tuple(sorted({classes.index(one.label) for one in debias.findings}))
    mix: tuple[Phase, ...] = (
        Mix(labels, debias.suspected),
        Retrain(debias.epochs, debias.lr),
    )
    return replace(stage, train=(*stage.train, Remember()), finish=(*mix, *stage.last))


def _last(before: Stage, debias: Debias) -> Stage:
    """A stage after all others: named prototypes are masked or made to cost."""
    masks: tuple[Phase, ...] = (Mask(debias.units),) if "mask" in debias.remedies else ()
    train: tuple[Phase, ...] = masks
    if "penalize" in debias.remedies:
        train = (*train, Penalize(debias.units, debias.strength), *before.train)
    train = (*train, Retrain(debias.epochs, debias.lr))
    return replace(
        before, name="debias", rounds=debias.rounds, train=train, finish=(*masks, *before.last)
    )


def without_remedies(stage: Stage) -> Stage:
    """What is left of a stage for a site that trains alone."""

    def plain(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        return tuple(phase for phase in phases if not isinstance(phase, Remedy))

    return replace(stage, train=plain(stage.train), finish=plain(stage.last))


def check_findings(debias: Debias, network: Network, classes: tuple[str, ...]) -> None:
    """Refuse classes and prototypes that this model does not have."""
    for one in debias.findings:
        if one.label not in classes:
            raise ConfigError(
                f"there is no class {one.label!r}", where=WHERE, hint=nearest(one.label, classes)
            )
    wanted = set(debias.remedies) - {"weigh", "leave-out"}
    if not wanted:
        return
    head = network.head
    if not isinstance(head, ProtoHead):
        raise ConfigError(
            f"{sorted(wanted)[0]!r} needs prototypes, and this model has none",
            where="debias.remedies",
            hint='Use "weigh" or "leave-out".',
        )
    owner = head.owner.tolist()
    for one in debias.findings:
        for unit in one.prototypes:
            _check_unit(unit, one.label, owner, classes)
    left = {each for unit, each in enumerate(owner) if unit not in debias.units}
    for label, name in enumerate(classes):
        if "mask" in debias.remedies and label not in left:
            raise ConfigError(
                f"every prototype of class {name!r} would be masked",
                where=WHERE,
                hint="Leave some, or choose another remedy.",
            )


def _check_unit(unit: int, label: str, owner: list[int], classes: tuple[str, ...]) -> None:
    mine = [at for at, each in enumerate(owner) if classes[each] == label]
    if unit not in mine:
        told = "there is no prototype" if unit >= len(owner) else "no prototype of that class is"
        raise ConfigError(
            f"{told} {unit}, named for class {label!r}",
            where=WHERE,
            hint=f"Its prototypes are {mine[0]} to {mine[-1]}.",
        )
