"""All attacks on one run: scenes, references, scores and what else was found out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.budget import Budget, Tell, quiet
from vitrail.attack.candidates import MembershipInference
from vitrail.attack.cases import Cases, Choice, whole_round
from vitrail.attack.labels import infer, recovered
from vitrail.attack.membership import Membership
from vitrail.attack.originals import originals
from vitrail.attack.prototypes import PatchRow, PatchSearch, parts_members
from vitrail.attack.shared import read_shared
from vitrail.attack.spoils import Matching, SharedAttack
from vitrail.attack.trial import Case, Row, Trial
from vitrail.engine.loaded import Run
from vitrail.engine.reference import images_of
from vitrail.errors import ConfigError, nearest
from vitrail.registry import load_plugins
from vitrail.rng import server

_SHARED = 200  # shared images that are looked at where nobody says how many


@dataclass(frozen=True)
class Assault:
    """What came of the attacks on one run: rows of figures, and the true images beside them."""

    run: Path
    rows: tuple[Row, ...]
    truth: Tensor  # [N, C, H, W], the image that each score of a row was measured against
    label_recovery: float | None
    patches: Mapping[str, Sequence[PatchRow]] = field(default_factory=dict)  # by site
    members: tuple[Membership, ...] = ()
    matchings: tuple[Matching, ...] = ()
    public: bool = False

    def lines(self) -> list[str]:
        """What a person should know besides the table."""
        told = [f"{row.name}: {row.threat.sentence()}" for row in self.rows if row.threat]
        if self.label_recovery is not None:
            share = 100 * self.label_recovery
            told.append(f"labels read off the update without any search: {share:.0f} % right")
        for site, rows in self.patches.items():
            told += [f"{site}, {row.sentence()}" for row in rows]
        told += [one.sentence() for one in self.members]
        told += [one.sentence() for one in self.matchings]
        return told

    def to_json(self) -> dict[str, Any]:
        """All figures, without pixels."""
        return {
            "run": self.run.name,
            "label_recovery": self.label_recovery,
            "rows": [row.to_json() for row in self.rows],
            "patches": {
                site: [row.to_json() for row in rows] for site, rows in self.patches.items()
            },
            "members": [one.to_json() for one in self.members],
            "matchings": [one.to_json() for one in self.matchings],
        }


def chosen_attacks(
    names: Sequence[str], options: Mapping[str, Any], public: Path | None = None
) -> list[Attack]:
    """The attacks by name with their options; `public` goes to those that use public images."""
    unknown = next((name for name in options if name not in names), None)
    if unknown is not None:
        raise ConfigError(
            f"{unknown!r} is not among the attacks",
            where="--set",
            hint=nearest(unknown, names),
        )
    found = []
    for name in names:
        own = dict(options.get(name, {}))
        if public is not None and "public" in ATTACKS[name].Options.model_fields:
            own.setdefault("public", str(public.resolve()))
        found.append(ATTACKS[name](name, own, "--set"))
    return found


def assault(
    run: Run,
    names: Sequence[str],
    choice: Choice | None = None,
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    labels: str = "both",
    public: Path | None = None,
    tell: Callable[[str], Tell] = lambda _: quiet,
    state: Path | None = None,
) -> Assault:
    """Run the named attacks on a recorded run; their states are kept so that they can go on."""
    load_plugins(run.config.run.plugins, run.loaded.base)
    attacks = chosen_attacks(names, options or {}, public or _held(run))
    chosen = choice or Choice()
    key = server(run.config.run.seed).at("attack")
    found = Assault(run.path, (), torch.empty(0), None, public=bool(run.card.get("public")))
    members = [a for a in attacks if isinstance(a, MembershipInference)]
    for asking in members:
        made = asking.find(run, chosen.sites, chosen.round, tell(asking.name))
        found = replace(found, members=(*found.members, *made))
    shared = [a for a in attacks if isinstance(a, SharedAttack)]
    if shared:
        found = _shared(found, run, shared, chosen, Trial(key, budget or Budget(), tell))
    if len(members) + len(shared) == len(attacks):
        return found
    if shared:
        raise ConfigError(
            "attacks on shared images and on updates get different images back",
            where="--attacks",
            hint="Give them in two commands.",
        )
    cases = Cases(run, chosen, key)
    trial = Trial(key, budget or Budget(), tell, state or run.path / "attacks")
    plain = cases.build()
    for looking in attacks:
        if isinstance(looking, PatchSearch):
            found = _patches(found, looking, plain, trial)
    searches = [a for a in attacks if a.kind == "images"]
    if not searches:
        return found
    rows = trial.references(plain)
    for attack in searches:
        own = cases.build(adaptive=True) if attack.adaptive else plain
        rows += trial.rows(attack, own, labels)
    truth = truth_beside(plain, rows[-1])
    return replace(found, rows=tuple(rows), truth=truth, label_recovery=_labels(plain))


def _held(run: Run) -> Path | None:
    """The file of the public images that the server of a run holds anyway."""
    public = run.config.data.public
    return None if public is None or public.path is None else Path(public.path)


def _shared(
    found: Assault, run: Run, attacks: Sequence[SharedAttack], choice: Choice, trial: Trial
) -> Assault:
    """Attacks on the images that sites shared, all on the same ones."""
    table = read_shared(run, choice.sites)
    if choice.round not in (None, table.stage.first):
        raise ConfigError(
            f"images were shared in round {table.stage.first}, not in round {choice.round}",
            where="--round",
            hint="Leave it out.",
        )
    truth = originals(table, images_of(run), choice.images or _SHARED, trial.key.at("originals"))
    spoils = [a.look(table, truth, trial.plain_job(a)) for a in attacks]
    return replace(
        found,
        rows=tuple(row for one in spoils for row in one.rows),
        truth=truth.images,
        members=(*found.members, *(m for one in spoils for m in one.members)),
        matchings=tuple(m for one in spoils for m in one.matchings),
    )


def _patches(found: Assault, attack: PatchSearch, cases: Sequence[Case], trial: Trial) -> Assault:
    """What each site's parts give away: patches, and whose images excite them."""
    patches = dict(found.patches)
    for case in cases:
        for at, site in enumerate(case.scene.sites):
            job = trial.job(attack, case.scene.take([at]))
            patches[site] = attack.rows(case.scene, at, case.truths[at], job)
    return replace(found, patches=patches, members=(*found.members, *_members(cases)))


def _members(cases: Sequence[Case]) -> list[Membership]:
    told = [parts_members(c.scene, at, own) for c in cases for at, own in enumerate(c.truths)]
    return [one for one in told if one is not None]


def members_by_parts(run: Run, sites: Sequence[str] = ()) -> list[Membership]:
    """What the parts sent in the last recorded round tell of who was trained on; nothing else."""
    key = server(run.config.run.seed).at("attack")
    return _members(Cases(run, whole_round(run, sites), key).build())


def truth_beside(cases: Sequence[Case], row: Row) -> Tensor:
    """The true images in the order of a row's scores."""
    found, at = [], 0
    for case in cases:
        for truth in case.truths:
            own = row.scores[at : at + case.scene.count]
            found.append(truth.images[torch.tensor([s.truth for s in own])])
            at += len(own)
    return torch.cat(found)


def _labels(cases: Sequence[Case]) -> float | None:
    shares = [recovered(infer(case.scene), case.labels()) for case in cases]
    told = [share for share in shares if share is not None]
    return sum(told) / len(told) if told else None
