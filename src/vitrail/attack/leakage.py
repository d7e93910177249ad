"""Defenses x attacks: the same images behind each defense, attacked in the same ways."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from torch import Tensor

from vitrail.attack.assault import chosen_attacks, truth_beside
from vitrail.attack.budget import Budget, Tell, quiet
from vitrail.attack.rehearsal import Rehearsal, Stage, rehearse, rows_for
from vitrail.attack.trial import Row, Trial
from vitrail.config import Loaded, parse
from vitrail.config.load import explain, parse_overrides
from vitrail.config.schema import Count, Positive, Table
from vitrail.engine.folder import RunFolder
from vitrail.engine.loaded import Run
from vitrail.engine.reference import images_of
from vitrail.engine.run import OnRound, resume, start
from vitrail.engine.settle import fingerprint, settled
from vitrail.engine.sitefolder import SiteFolder
from vitrail.errors import ConfigError, RunError
from vitrail.files import folder_name
from vitrail.registry import load_plugins
from vitrail.release.defense import DEFENSES
from vitrail.release.promise import NO_GUARANTEE, NOTHING
from vitrail.rng import server

NONE = "none"


class Guarded(Table):
    """`[[leakage.defenses]]`: a row of the table."""

    name: str
    """What the row is called."""
    release: dict[str, Any] = {}
    """Its `[release]` section."""


class LeakageOptions(Table):
    """`[leakage]`: which defenses, which attacks, on how many images."""

    defenses: tuple[str | Guarded, ...] = (NONE,)
    """Names of defenses, or tables of a name and a release section."""
    energies: tuple[Positive, ...] = ()
    """Noise over change, for every additive defense that is given by name."""
    attacks: tuple[str, ...] = ("ig", "ig-adaptive")
    """Which attacks; `vitrail attack RUN --attacks list` names them."""
    images: Count = 10
    """Images that are attacked; the same behind each defense."""
    per_site: Count = 1
    """Images a site trains on together."""
    batch_size: Count | None = None
    """Images in a step; left out: all of a site's."""
    epochs: Count = 1
    """Local epochs of the attacked turn."""
    model: Literal["start", "trained"] = "start"
    """Which model is sent to the attacked sites: the run's first one, or its last."""
    rounds: Count = 4
    """Rounds an adaptive attacker puts together."""
    iterations: Count | None = None
    """Steps of a search; left out: each attack's own."""
    seconds: Positive | None = None
    """The longest a search may take."""
    labels: Literal["both", "known", "inferred"] = "both"
    """What the attacker knows of the labels; both: inferred ones where they are not all right."""
    public: str | None = None
    """Public images for attacks with a generator."""
    attack: dict[str, dict[str, Any]] = {}
    """Options of attacks, `[leakage.attack.ig]`."""


@dataclass(frozen=True)
class Plan:
    """A leakage file: the federation, its rows by name, and the options."""

    loaded: Loaded
    rows: Mapping[str, Mapping[str, Any]]
    options: LeakageOptions


@dataclass(frozen=True)
class Outcome:
    """One defense: the run behind it, its accuracy, the noise it added, and the attacks on it.

    `energy` is what the attacked updates got, `asked` what the release section asked for.
    """

    name: str
    run: Path
    accuracy: float | None
    energy: float
    asked: float | None
    epsilon: float | None
    guarantee: str
    rows: tuple[Row, ...]
    figures: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All figures, without pixels."""
        return {
            "defense": self.name,
            "accuracy": self.accuracy,
            "energy": self.energy,
            "epsilon": self.epsilon,
            "guarantee": self.guarantee,
            **self.figures,
            "attacks": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True)
class Leakage:
    """The whole grid, with the references and the true images."""

    outcomes: tuple[Outcome, ...]
    references: tuple[Row, ...]
    truth: Tensor
    options: LeakageOptions

    def to_json(self) -> dict[str, Any]:
        """All figures, without pixels."""
        return {
            "options": self.options.model_dump(mode="json"),
            "references": [row.to_json() for row in self.references],
            "defenses": [outcome.to_json() for outcome in self.outcomes],
        }


def load_leakage(path: Path, overrides: Iterable[str] = ()) -> Plan:
    """Read a run's TOML file that has a `[leakage]` section; the undefended row is added."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint="A run's TOML with a [leakage] section.")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise ConfigError(f"this is not valid TOML ({err})", where=str(path)) from err
    told = raw.pop("leakage", None)
    if not isinstance(told, dict):
        raise ConfigError(
            "there is no [leakage] section",
            where=str(path),
            hint='Add [leakage] with defenses = ["none", ...] and attacks = ["ig"].',
        )
    texts = list(overrides)
    own = [text for text in texts if text.strip().startswith("leakage.")]
    loaded = parse(raw, path.parent, str(path), [t for t in texts if t not in own])
    options = _options(told, own, str(path))
    load_plugins(loaded.config.run.plugins, loaded.base)
    return Plan(loaded, release_rows(options), options)


def _options(told: Mapping[str, Any], overrides: Iterable[str], source: str) -> LeakageOptions:
    tree = {**told, **parse_overrides(overrides).get("leakage", {})}
    try:
        return LeakageOptions.model_validate_json(json.dumps(tree), strict=True)
    except ValidationError as err:
        raise explain(err, source, LeakageOptions, "leakage") from None


def release_rows(options: LeakageOptions) -> dict[str, dict[str, Any]]:
    """The `[release]` section of every row by its name, the undefended one first."""
    found: dict[str, dict[str, Any]] = {NONE: {"defenses": []}}
    for each in options.defenses:
        if isinstance(each, Guarded):
            found[each.name] = dict(each.release)
        elif each != NONE:
            additive = DEFENSES[each].additive
            for energy in options.energies if additive and options.energies else (None,):
                name = each if energy is None else f"{each}{at(energy)}"
                extra = {} if energy is None else {"energy": energy}
                found[name] = {"defenses": [each], **extra}
    return found


def at(energy: float) -> str:
    """How a row's name ends that asks for an energy."""
    return f" at {energy:g}"


@dataclass
class Grid:
    """Plays a leakage plan into a folder; what is finished there is taken up again."""

    plan: Plan
    out: Path
    on_run: Callable[[str], OnRound | None] = field(default=lambda _: None)
    tell: Callable[[str], Tell] = field(default=lambda _: quiet)

    def play(self) -> Leakage:
        """Train behind every defense, then attack the same images behind each."""
        options = self.plan.options
        attacks = chosen_attacks(
            options.attacks, options.attack, None if options.public is None else self._public()
        )
        for attack in attacks:
            if attack.kind != "images":
                raise ConfigError(
                    f"{attack.name} gets no image back from an update",
                    where="leakage.attacks",
                    hint=f"`vitrail attack RUN --attacks {attack.name}` runs it on one run.",
                )
        runs = {name: self._run(name, release) for name, release in self.plan.rows.items()}
        stage = Stage(
            options.images, options.per_site, options.epochs, options.batch_size, options.model,
            options.rounds,
        )  # fmt: skip
        key = server(self.plan.loaded.config.run.seed).at("leakage")
        federation = images_of(runs[NONE])
        rows = rows_for(federation, stage, key)
        outcomes: list[Outcome] = []
        references: list[Row] = []
        truth: Tensor | None = None
        for name, run in runs.items():
            made = rehearse(run, federation, rows, stage, key)
            trial = Trial(
                key,
                Budget(options.iterations, options.seconds),
                partial(self._tell, name),
                self.out / "states",
            )
            if truth is None:
                references = trial.references([made.once])
                truth = truth_beside([made.once], references[0])
            found: list[Row] = []
            for attack in attacks:
                case = made.often if attack.adaptive else made.once
                found += trial.rows(attack, [case], options.labels)
            outcomes.append(_outcome(name, run, made, found))
        assert truth is not None
        return Leakage(tuple(outcomes), tuple(references), truth, options)

    def _tell(self, defense: str, attack: str) -> Tell:
        return self.tell(f"{defense}: {attack}")

    def _public(self) -> Path:
        return self.plan.loaded.base / str(self.plan.options.public)

    def _run(self, name: str, release: Mapping[str, Any]) -> Run:
        """The federation behind one defense, trained once."""
        base = self.plan.loaded
        tree = base.config.model_dump(mode="json", exclude_none=True)
        tree["release"] = dict(release)
        loaded = replace(parse(tree, base.base, base.source), base=base.base)
        path = self.out / "runs" / folder_name(name)
        if not RunFolder(path).config_file.exists():
            start(loaded, path, self.on_run(name))
        else:
            stored = RunFolder(path).open().config
            if fingerprint(stored) != fingerprint(settled(loaded)):
                raise RunError(
                    "this row was run with another configuration",
                    where=str(path),
                    hint="Use another --out, or delete the folder to run it again.",
                )
            resume(path, on_round=self.on_run(name))
        return Run(path)


def _outcome(name: str, run: Run, made: Rehearsal, rows: list[Row]) -> Outcome:
    curve = run.curve("accuracy")
    epsilon, guarantee = promised(run)
    return Outcome(
        name=name,
        run=run.path,
        accuracy=curve[-1][1] if curve else None,
        energy=made.energy,
        asked=run.config.release.energy,
        epsilon=epsilon,
        guarantee=guarantee,
        rows=tuple(rows),
    )


def promised(run: Run) -> tuple[float | None, str]:
    """The largest epsilon that a site's ledger proves for the whole run, and its guarantee.

    One release of one site that is empirical as a whole, and the run has none, whatever one of its
    mechanisms promises.
    """
    worst, words = None, NO_GUARANTEE
    for site in run.sites:
        lines = SiteFolder(run.path, site).ledger().lines()
        left = [x for x in lines if x.get("kind") == "release" and x["guarantee"] != NOTHING]
        if any(str(line["guarantee"]).startswith("empirical") for line in left):
            return None, NO_GUARANTEE
        for line in left:
            spent = [s["epsilon"] for s in line.get("spends", ()) if s["epsilon"] is not None]
            if spent and (worst is None or max(spent) > worst):
                worst, words = max(spent), str(line["guarantee"])
    return worst, words
