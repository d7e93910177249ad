"""Defenses x attacks: the same images behind each defense, attacked in the same ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from torch import Tensor

from vitrail.attack.budget import Budget, Tell, tell_nobody
from vitrail.attack.findings import Row
from vitrail.attack.job import LabelKnowledge
from vitrail.attack.rehearsal import Rehearsal, RehearsalSetup, draw_rows, rehearse
from vitrail.attack.run_attacks import make_attacks
from vitrail.attack.scoring import score_references, select_true_images
from vitrail.attack.trial import Trial
from vitrail.attack.view import SceneView
from vitrail.config import Loaded, parse
from vitrail.config.extends import read_tree
from vitrail.config.load import parse_overrides, to_config_error
from vitrail.config.schema import Count, Positive, Section
from vitrail.engine.resolve_config import fingerprint_run
from vitrail.engine.run import OnRound, resume, start
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import ConfigError, RunError
from vitrail.files import make_folder_name
from vitrail.registry import load_plugins
from vitrail.release.accounting.promise import NO_GUARANTEE, NOTHING
from vitrail.release.defenses.defense import DEFENSES
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation

NONE = "none"
IMAGES_FROM = SceneView.offers - {"parts"}  # what an attack needs that gets images back


class Guarded(Section):
    """`[[leakage.defenses]]`: a row of the table."""

    name: str
    """What the row is called."""
    release: dict[str, Any] = {}
    """Its `[release]` section."""


class LeakageOptions(Section):
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
    labels: LabelKnowledge = "both"
    """What the attacker knows of the labels; both: inferred ones where they are not all right."""
    public: str | None = None
    """Public images for attacks with a generator."""
    attack: dict[str, dict[str, Any]] = {}
    """Options of attacks, `[leakage.attack.ig]`."""


@dataclass(frozen=True)
class LeakagePlan:
    """A leakage file: the federation, its rows by name, and the options."""

    loaded: Loaded
    rows: Mapping[str, Mapping[str, Any]]
    options: LeakageOptions


@dataclass(frozen=True)
class DefenseOutcome:
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
class LeakageResults:
    """The whole grid, with the references and the true images."""

    outcomes: tuple[DefenseOutcome, ...]
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


def load_leakage(
    path: Path, overrides: Iterable[str] = (), scale: str | None = None
) -> LeakagePlan:
    """Read a run's TOML file that has a `[leakage]` section; the undefended row is added."""
    if path.is_dir():
        raise ConfigError(
            "this is a folder: leakage trains runs of its own, from a TOML file",
            where=str(path),
            hint="Give it a TOML file with a [leakage] section and images of this machine.",
        )
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint="A run's TOML with a [leakage] section.")
    raw = read_tree(path, scale)
    section = raw.pop("leakage", None)
    if not isinstance(section, dict):
        raise ConfigError(
            "there is no [leakage] section",
            where=str(path),
            hint='Add [leakage] with defenses = ["none", ...] and attacks = ["ig"].',
        )
    texts = list(overrides)
    grid_overrides = [text for text in texts if text.strip().startswith("leakage.")]
    loaded = parse(raw, path.parent, str(path), [t for t in texts if t not in grid_overrides])
    options = _read_options(section, grid_overrides, str(path))
    load_plugins(loaded.config.run.plugins, loaded.base)
    return LeakagePlan(loaded, make_release_sections(options), options)


def _read_options(
    section: Mapping[str, Any], overrides: Iterable[str], source: str
) -> LeakageOptions:
    tree = {**section, **parse_overrides(overrides).get("leakage", {})}
    try:
        return LeakageOptions.model_validate_json(json.dumps(tree), strict=True)
    except ValidationError as err:
        raise to_config_error(err, source, LeakageOptions, "leakage") from None


def make_release_sections(options: LeakageOptions) -> dict[str, dict[str, Any]]:
    """The `[release]` section of every row by its name, the undefended one first."""
    sections: dict[str, dict[str, Any]] = {NONE: {"defenses": []}}
    for defense in options.defenses:
        if isinstance(defense, Guarded):
            sections[defense.name] = dict(defense.release)
        elif defense != NONE:
            additive = DEFENSES[defense].additive
            for energy in options.energies if additive and options.energies else (None,):
                name = defense if energy is None else f"{defense}{format_energy_suffix(energy)}"
                extra = {} if energy is None else {"energy": energy}
                sections[name] = {"defenses": [defense], **extra}
    return sections


def format_energy_suffix(energy: float) -> str:
    """How a row's name ends that asks for an energy."""
    return f" at {energy:g}"


@dataclass
class LeakageGrid:
    """Plays a leakage plan into a folder; what is finished there is taken up again."""

    plan: LeakagePlan
    out: Path
    on_run: Callable[[str], OnRound | None] = field(default=lambda _: None)
    tell: Callable[[str], Tell] = field(default=lambda _: tell_nobody)

    def play(self) -> LeakageResults:
        """Train behind every defense, then attack the same images behind each."""
        options = self.plan.options
        attacks = make_attacks(
            options.attacks, options.attack, None if options.public is None else self._public()
        )
        for attack in attacks:
            if attack.needs not in IMAGES_FROM:
                raise ConfigError(
                    f"{attack.name} gets no image back from an update",
                    where="leakage.attacks",
                    hint=f"`vitrail attack RUN --attacks {attack.name}` runs it on one run.",
                )
        runs = {name: self._run(name, release) for name, release in self.plan.rows.items()}
        stage = RehearsalSetup(
            options.images, options.per_site, options.epochs, options.batch_size, options.model,
            options.rounds,
        )  # fmt: skip
        key = derive_server_key(self.plan.loaded.config.run.seed).at("leakage")
        federation = load_run_federation(runs[NONE])
        rows = draw_rows(federation, stage, key)
        outcomes: list[DefenseOutcome] = []
        references: list[Row] = []
        truth: Tensor | None = None
        for name, run in runs.items():
            rehearsal = rehearse(run, federation, rows, stage, key)
            trial = Trial(
                key,
                rehearsal.truth,
                Budget(options.iterations, options.seconds),
                partial(self._tell, name),
                self.out / "states",
                options.labels,
            )
            if truth is None:
                references = score_references([rehearsal.once], rehearsal.truth)
                truth = select_true_images([rehearsal.once], rehearsal.truth, references[0])
            findings = [trial.run(attack, rehearsal.view) for attack in attacks]
            scored = [row for one in findings for row in one.rows if not row.is_reference]
            outcomes.append(_make_outcome(name, run, rehearsal, scored))
        assert truth is not None
        return LeakageResults(tuple(outcomes), tuple(references), truth, options)

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
        path = self.out / "runs" / make_folder_name(name)
        if not RunFolder(path).config_file.exists():
            start(loaded, path, self.on_run(name))
        else:
            if fingerprint_run(RunFolder(path).open()) != fingerprint_run(loaded):
                raise RunError(
                    "this row was run with another configuration",
                    where=str(path),
                    hint="Use another --out, or delete the folder to run it again.",
                )
            resume(path, on_round=self.on_run(name))
        return Run(path)


def _make_outcome(name: str, run: Run, rehearsal: Rehearsal, rows: list[Row]) -> DefenseOutcome:
    curve = run.curve("accuracy")
    epsilon, guarantee = find_largest_epsilon(run)
    return DefenseOutcome(
        name=name,
        run=run.path,
        accuracy=curve[-1][1] if curve else None,
        energy=rehearsal.energy,
        asked=run.config.release.energy,
        epsilon=epsilon,
        guarantee=guarantee,
        rows=tuple(rows),
    )


def find_largest_epsilon(run: Run) -> tuple[float | None, str]:
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
