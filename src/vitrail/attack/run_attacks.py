"""All attacks on one run, one after the other, and what they found together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.budget import Budget, Tell, tell_nobody
from vitrail.attack.choice import Choice
from vitrail.attack.findings import Findings
from vitrail.attack.ground_truth import RunTruth
from vitrail.attack.job import LabelKnowledge
from vitrail.attack.run_view import RunView
from vitrail.attack.trial import Trial
from vitrail.attack.view import Needs
from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.registry import load_plugins
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run

# What comes first in a report; attacks that need the same stand in the order they were named in.
_ORDER: dict[Needs, int] = {
    "model": 0, "shared images": 1, "parts": 2, "updates": 3, "gradients": 3,
}  # fmt: skip


@dataclass(frozen=True)
class AttackResults(Findings):
    """What came of the attacks on one run; `public` says that everybody may see its images."""

    run: Path = Path()
    public: bool = False

    def to_json(self) -> dict[str, Any]:
        """All numbers, without pixels."""
        return {"run": self.run.name, **super().to_json()}


def make_attacks(
    names: Sequence[str], options: Mapping[str, Any], public: Path | None = None
) -> list[Attack]:
    """The attacks by name with their options; `public` goes to those that use public images."""
    unknown = next((name for name in options if name not in names), None)
    if unknown is not None:
        raise ConfigError(
            f"{unknown!r} is not among the attacks",
            where="--set",
            hint=suggest_name(unknown, names),
        )
    attacks = []
    for name in names:
        section = dict(options.get(name, {}))
        if public is not None and "public" in ATTACKS[name].Options.model_fields:
            section.setdefault("public", str(public.resolve()))
        attacks.append(ATTACKS[name](name, section, "--set"))
    return attacks


def run_attacks(
    run: Run,
    names: Sequence[str],
    choice: Choice | None = None,
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    labels: LabelKnowledge = "both",
    public: Path | None = None,
    tell: Callable[[str], Tell] = lambda _: tell_nobody,
    state: Path | None = None,
) -> AttackResults:
    """Run the named attacks on a recorded run; their states are kept so that they can go on."""
    _check_end(run)
    load_plugins(run.config.run.plugins, run.loaded.base, stored=True)
    attacks = make_attacks(names, options or {}, public or _find_public_file(run))
    _check_same_images(attacks)
    chosen = choice or Choice()
    key = derive_server_key(run.config.run.seed).at("attack")
    view, truth = RunView(run, chosen), RunTruth(run, key, chosen.images)
    folder = state or run.path / "attacks"
    trial = Trial(key, truth, budget or Budget(), tell, folder, labels)
    findings = Findings()
    for attack in sorted(attacks, key=lambda attack: _ORDER[attack.needs]):
        findings = findings.merge(trial.run(attack, view))
    return AttackResults(**vars(findings), run=run.path, public=bool(run.card.get("public")))


def _check_end(run: Run) -> None:
    """An attack reads the server's side and is scored on true images: no end of a real federation
    has both."""
    if run.end == "simulation":
        return
    lacks = (
        "the coordinator has no true images to score an attack on"
        if run.end == "coordinator"
        else "a site's folder has nothing of what the server received"
    )
    raise RunError(
        lacks,
        where=str(run.path),
        hint="Rehearse the same terms as a simulation with run.record_updates = true, and attack "
        "that.",
    )


def _find_public_file(run: Run) -> Path | None:
    """The file of the public images that the server of a run holds anyway."""
    public = run.config.data.public
    return None if public is None or public.path is None else Path(public.path)


def _check_same_images(attacks: Sequence[Attack]) -> None:
    """Refuse attacks whose images could not stand in one table."""
    needs = {attack.needs for attack in attacks}
    if "shared images" in needs and needs & {"parts", "updates", "gradients"}:
        raise ConfigError(
            "attacks on shared images and on updates get different images back",
            where="--attacks",
            hint="Give them in two commands.",
        )
