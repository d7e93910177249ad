"""Remedies tried on a short budget, before and after side by side: a choice for people.

Every try goes on from the audited model for a few rounds, with a remedy or without one, on the
same images in the same order. A retrained federation may do better than such a try.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from vitrail.audit.audit_run import load_site_view
from vitrail.audit.counterfactual.effects import CoveringEffect, measure_region
from vitrail.audit.federation_view import Audit
from vitrail.audit.finding import Finding
from vitrail.audit.remedy_choice import list_remedies
from vitrail.audit.remedy_figures import (
    Floats,
    HeldOut,
    Recalls,
    compute_right,
    gather_held_out,
)
from vitrail.audit.remedy_plan import plan_remedies
from vitrail.config import Loaded
from vitrail.engine.federation import Federation
from vitrail.engine.run import start
from vitrail.errors import ConfigError, RunError
from vitrail.rng import Key, derive_server_key
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation

ROUNDS = 3  # of a try
BEFORE = "no remedy"
_LEVEL = 0.025  # one-sided, shared among the remedies that are tried
Effect = Literal["helps", "no clear change", "costs more than it mends"]


@dataclass(frozen=True)
class Reliance:
    """What the suspected region does to the shared model: log-odds and share of other images won
    when it is put into them, and right answers with and without it."""

    swapped: float
    flipped: float
    covered: CoveringEffect

    def to_json(self) -> dict[str, Any]:
        """For the audit's JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TriedRemedy:
    """One try. `change` is that of balanced recall on unbiased validation images against no
    remedy, with its standard error; `effect` follows from these two alone. `test_change` is the
    same on test images, which no choice looks at."""

    name: str
    validation: Recalls
    test: Recalls
    reliance: Reliance | None
    change: float = 0.0
    error: float = 0.0
    test_change: float = 0.0
    effect: Effect | None = None

    def to_json(self) -> dict[str, Any]:
        """For the audit's JSON."""
        return {
            "remedy": self.name,
            "effect": self.effect,
            "change": self.change,
            "error": self.error,
            "test_change": self.test_change,
            "validation": self.validation.to_json(),
            "test": self.test.to_json(),
            "reliance": None if self.reliance is None else self.reliance.to_json(),
        }


@dataclass(frozen=True)
class RemedyTrial:
    """All tries against some findings, the one without a remedy first; `skipped` says why a
    remedy that the readings call for could not be tried."""

    findings: tuple[Finding, ...]
    rounds: int
    tried: tuple[TriedRemedy, ...]
    skipped: dict[str, str]

    @property
    def best(self) -> TriedRemedy | None:
        """The remedy that surely helps most on validation images, if one does."""
        helping = [one for one in self.tried if one.effect == "helps"]
        return max(helping, key=lambda one: one.change, default=None)

    @property
    def sentence(self) -> str:
        """What the tries come to; people decide."""
        if not self.findings:
            return (
                "Nothing was tried: no finding is both biased and read as something that a remedy "
                "would mend. Where a mark is there, clean the images."
            )
        if len(self.tried) < 2:
            return "No remedy could be tried on this run."
        costly = [one.name for one in self.tried if one.effect == "costs more than it mends"]
        warning = f" Costs more than it mends: {', '.join(costly)}." if costly else ""
        if self.best is None:
            return f"No remedy surely helps within {self.rounds} rounds.{warning}"
        return (
            f"On validation images {self.best.name} helps most: balanced recall "
            f"{100 * self.best.change:+.1f} points (standard error "
            f"{100 * self.best.error:.1f}), on test images {100 * self.best.test_change:+.1f}."
            f"{warning}"
        )

    def to_json(self) -> dict[str, Any]:
        """For the audit's JSON."""
        return {
            "against": [{"site": f.site, "class": f.label} for f in self.findings],
            "rounds": self.rounds,
            "best": None if self.best is None else self.best.name,
            "sentence": self.sentence,
            "tried": [one.to_json() for one in self.tried],
            "skipped": self.skipped,
        }


def try_remedies(
    run: Run,
    audit: Audit,
    rounds: int = ROUNDS,
    tell: Callable[[str], None] | None = None,
    only: Sequence[str] = (),
) -> RemedyTrial:
    """Play what the readings of an audit call for, a few rounds each; or the remedies in `only`
    against everything that is biased, whatever its reading.

    Nothing of it stays: the tries are played in a temporary folder.
    """
    if run.end != "simulation":
        raise RunError(
            "remedies are tried where all sites of a run are, and this is one end of a real "
            "federation",
            where=str(run.path),
            hint="Propose a run with `[debias]` to the sites; docs/how-to/debias-a-federation.md.",
        )
    findings = [
        f for site in audit.sites for f in site.findings
        if list_remedies(f) or (only and f.verdict == "biased")
    ]  # fmt: skip
    findings.sort(key=lambda f: -f.score)
    wanted: list[str] = list(only)
    for finding in findings if not only else ():
        wanted += [name for name in list_remedies(finding) if name not in wanted]
    if not findings:
        return RemedyTrial((), rounds, (), {})
    federation = load_run_federation(run)
    key = derive_server_key(run.config.run.seed).at("audit", "remedies")
    pairs = [(f.site, run.classes.index(f.label)) for f in findings]
    held = gather_held_out(federation, pairs, key)
    if not len(held.labels):
        raise RunError(
            "no image of this run was held out, so a remedy cannot be judged",
            where=str(run.path),
            hint="Set partition.test_fraction.",
        )
    trial = _Trial(run, audit, federation, held, tuple(findings), rounds, key, tell)
    with tempfile.TemporaryDirectory(prefix="vitrail-remedies-") as folder:
        tried, skipped = trial.play(Path(folder), wanted)
    return RemedyTrial(tuple(findings), rounds, tuple(tried), skipped)


@dataclass
class _Trial:
    run: Run
    audit: Audit
    federation: Federation
    held: HeldOut
    findings: tuple[Finding, ...]  # the region of the first is looked at in the models
    rounds: int
    key: Key
    tell: Callable[[str], None] | None

    def play(
        self, folder: Path, remedies: Sequence[str]
    ) -> tuple[list[TriedRemedy], dict[str, str]]:
        """No remedy, then each of some."""
        base = self._shorten(self.run.folder.open(), ())
        before = self._train(base, folder / "before", BEFORE)
        right = compute_right([before.model()], self.held)
        tried = [self._judge(BEFORE, [before.model()], right)]
        skipped: dict[str, str] = {}
        for name in remedies:
            try:
                told, where = _open_plans(self.audit.to_json(), self.findings), str(self.run.path)
                loaded = plan_remedies(self.run.folder.open(), told, where, (name,))
                after = self._train(self._shorten(loaded, (name,)), folder / name, name)
            except ConfigError as err:
                skipped[name] = err.what
                continue
            models = self._load_models(after, name)
            now = compute_right(models, self.held)
            change, error = self.held.compare(right, now, self.held.validation)
            test_change, _ = self.held.compare(right, now, ~self.held.validation)
            effect = judge_change(change, error, len(remedies))
            tried.append(
                replace(
                    self._judge(name, models, now),
                    change=change, error=error, test_change=test_change, effect=effect,
                )
            )  # fmt: skip
        return tried, skipped

    def _shorten(self, loaded: Loaded, remedies: Sequence[str]) -> Loaded:
        """A few rounds from the audited model; where parts of it stay at sites, from the start."""
        config = loaded.config
        if self.run.keeps_home and set(remedies) & {"mask", "penalize"}:
            raise ConfigError(
                "parts of this model stay at the sites, so prototypes have no common numbers"
            )
        update = {"rounds": self.rounds + config.debias.last_rounds, "local_reference": False}
        model = config.model
        if not self.run.keeps_home:
            model = model.model_copy(update={"start": str(self.run.path.resolve())})
        run = config.run.model_copy(update=update)
        return replace(loaded, config=config.model_copy(update={"run": run, "model": model}))

    def _train(self, loaded: Loaded, folder: Path, name: str) -> Run:
        if self.tell is not None:
            self.tell(f"trying {name}")
        return Run(start(loaded, folder).path)

    def _load_models(self, run: Run, remedy: str) -> list[DeployedModel]:
        """The global model; what is mixed at home is the unsuspected sites' own."""
        if remedy != "mix":
            return [run.model()]
        suspected = run.config.debias.suspected
        return [run.model(site, "personal") for site in run.sites if site not in suspected]

    def _judge(self, name: str, models: Sequence[DeployedModel], right: Floats) -> TriedRemedy:
        validation = self.held.validation
        return TriedRemedy(
            name,
            self.held.summarize(right, validation),
            self.held.summarize(right, ~validation),
            self._measure_reliance(models[0]),
        )

    def _measure_reliance(self, model: DeployedModel) -> Reliance | None:
        """The finding's region in another shared model, on the site's own images."""
        first = self.findings[0]
        view = replace(load_site_view(self.run, self.federation, first.site), shared=model)
        label = view.classes.index(first.label)
        probe = measure_region(view, label, first.place, self.key.at("region"))
        if probe is None:
            return None
        return Reliance(
            probe.effect.swapped["shared"], probe.effect.flipped["shared"], probe.covered["shared"]
        )


def _open_plans(told: dict[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    """An audit's JSON in which nothing but some findings is to be remedied. It is of this very
    run, so that prototypes have their numbers."""
    told["config"] = None
    chosen = {(f.site, f.label) for f in findings}
    for site in told["sites"]:
        for entry in site["classes"]:
            entry["plan"] = ["any"] if (site["site"], entry["class"]) in chosen else []
    return told


def judge_change(change: float, error: float, tries: int) -> Effect:
    """Help must be sure, with as many tries; a loss need not be: what lowers the mean is a cost."""
    if change > NormalDist().inv_cdf(1 - _LEVEL / max(1, tries)) * error:
        return "helps"
    return "costs more than it mends" if change < 0 else "no clear change"
