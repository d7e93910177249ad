"""The plan of a run: all that follows from the configuration before the first round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from vitrail.aggregate.rule import RULES, Group, PerSiteRule
from vitrail.aggregate.sums import find_shortage
from vitrail.config.load import Loaded
from vitrail.config.schema import Config, Run
from vitrail.engine.warm_start import load_warm_start
from vitrail.errors import ConfigError
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases.phase import Phase, count_epochs
from vitrail.local.phases.push import replace_real_pushes
from vitrail.local.rate_schedule import compute_rate_share
from vitrail.local.session import Context
from vitrail.methods import About, Method, RunSetup, Stage, make_method, resolve_table
from vitrail.methods.base.debias_stages import add_remedies, check_findings, drop_remedies
from vitrail.methods.base.stage import apply_user_choices
from vitrail.models.flat import Layout, Region
from vitrail.models.network import Network, make_network
from vitrail.models.parts import list_tensors
from vitrail.registry import load_plugins
from vitrail.release.defenses.defense import DEFENSES, Defense, make_defenses
from vitrail.release.message import ANY, Field, Schema, make_model_fields
from vitrail.release.setting import Setting, StageSetting, list_convs, list_norms
from vitrail.rng import Key, derive_server_key
from vitrail.secure_aggregation.key_exchange import check_installed
from vitrail.secure_aggregation.secure_sum import check_masked, masked_schema

CLASSIFIER_METRICS = (
    "loss",
    "accuracy",
    "balanced_accuracy",
    "auroc",
    "sensitivity",
    "specificity",
)
PARTS_METRICS = (
    "duplicates",
    "grounded",
    "pruned",
    "global_accuracy",
    "subspace_distance",
    "affine_shift",
    "alignment_residual",
)
WORK_METRICS = (
    "train_loss",
    "shared_images",
    "image_steps",
    "seconds",
)  # of a turn, not of a model
METRICS = (*CLASSIFIER_METRICS, *PARTS_METRICS, "test_examples", *WORK_METRICS)


@dataclass(frozen=True)
class StagePlan:
    """A stage with its rounds numbered and its messages declared."""

    stage: Stage
    first: int
    last: int
    schema: Schema
    answers: Mapping[str, str]
    shared: Region
    masked: Schema | None = None  # what leaves a site instead, with secure sums

    @property
    def wire(self) -> Schema:
        """What really travels."""
        return self.schema if self.masked is None else self.masked

    @property
    def travels(self) -> tuple[str, ...]:
        """The model tensors that go down and up."""
        return tuple(
            f.name.removeprefix("model/") for f in self.schema.up if f.name.startswith("model/")
        )

    @property
    def arrives(self) -> tuple[str, ...]:
        """The model tensors that go down: what travels, and what earlier stages learned."""
        return tuple(
            f.name.removeprefix("model/") for f in self.schema.down if f.name.startswith("model/")
        )

    @property
    def still(self) -> frozenset[str]:
        """The tensors that this stage leaves as they are."""
        return frozenset(name for name, answer in self.answers.items() if answer == "frozen")

    @property
    def home(self) -> tuple[str, ...]:
        """The model tensors that a site keeps for itself."""
        return tuple(name for name, answer in self.answers.items() if answer == "home")


@dataclass(frozen=True)
class Plan:
    """A run before its first round; equal in every process that reads the same configuration."""

    config: Config
    method: Method
    optimizer: OptimizerSettings
    layout: Layout
    stages: tuple[StagePlan, ...]
    classes: tuple[str, ...]
    channels: int
    card: Mapping[str, str]
    setting: Setting

    @property
    def private(self) -> bool:
        """Whether a mechanism with a proof stands at the door, so that counts and figures stay."""
        return any(DEFENSES[name].formal for name in self.config.release.defenses)

    @property
    def secure(self) -> bool:
        """Whether the server sees sums only."""
        return any(stage.masked is not None for stage in self.stages)

    @property
    def trusts(self) -> bool:
        """Whether a rule compares with what the server trains on trusted images of its own."""
        return any(RULES[f.rule].trusts for stage in self.stages for f in stage.schema.up_added)

    @property
    def key(self) -> Key:
        """The server's root of randomness."""
        return derive_server_key(self.config.run.seed)

    def image_shape(self, size: int) -> tuple[int, int, int]:
        """The shape [height, width, channels] of images whose sides have so many pixels."""
        return size, size, self.channels

    def stage_at(self, round_: int) -> StagePlan:
        """The stage a round belongs to; after the last round, the last stage."""
        return next((s for s in self.stages if s.first <= round_ <= s.last), self.stages[-1])

    def list_assets(self) -> frozenset[str]:
        """The names of what the server may give all sites to keep: what messages bring as it is."""
        kept = (field.name for stage in self.stages for field in stage.schema.up_kept)
        return frozenset(name.partition("/")[0] for name in kept)

    def context(self, round_: int, sites: int) -> Context:
        """The frozen context of one round."""
        run = self.config.run
        return Context(
            round=round_,
            stage=self.stage_at(round_).stage.name,
            sites=sites,
            classes=len(self.classes),
            epochs=run.local_epochs,
            batch_size=run.batch_size,
            optimizer=self.optimizer.scale(
                compute_rate_share(self.config.optimizer, round_, run.rounds)
            ),
            options=self.method.options,
            key=self.key.at("round", round_),
            channels=self.channels,
        )

    def make_local_plan(self) -> Plan:
        """The same plan for a site that shares nothing and receives nothing."""
        nothing = Schema(down=(), up=(), counts=(), metrics=METRICS)
        stages = []
        moves = {n for s in self.stages for n, a in s.answers.items() if a != "frozen"}
        for stage in self.stages:
            # A stage without training carries the site's own model on, as home tensors are.
            still = set() if not stage.stage.trains else stage.still
            kept = {n: "home" if n in moves and n not in still else "frozen" for n in stage.answers}
            local = drop_remedies(stage.stage)
            local = replace(local, train=tuple(p for p in local.train if _is_usable_alone(p)))
            stages.append(
                replace(
                    stage, stage=local, schema=nothing, answers=kept, shared=Region(()), masked=None
                )
            )
        return replace(self, stages=tuple(stages), method=Method({}))

    def defenses(self) -> tuple[Defense, ...]:
        """The defenses of the door, in order."""
        return make_defenses(self.setting)


def make_plan(
    loaded: Loaded,
    classes: tuple[str, ...],
    channels: int,
    examples: Mapping[str, int] | None = None,
    size: int | None = None,
) -> tuple[Plan, Network]:
    """Resolve names, build the network, answer for every tensor, number the rounds.

    `examples` are the training images by site and `size` the pixels of their side, where they
    are known already.
    """
    config = loaded.config
    load_plugins(config.run.plugins, loaded.base, loaded.stored)
    method = make_method(config, loaded.source)
    optimizer = method.optimizer.override_with(config.optimizer)
    _check_weights(config, method)
    network, card = make_network(
        config.model,
        method.model,
        channels,
        len(classes),
        derive_server_key(config.run.seed).at("init"),
        loaded.base,
    )
    if config.model.start is not None:
        card = {**card, "start": load_warm_start(network, config.model.start, loaded.base)}
    method.check_run(RunSetup(optimizer, network))
    layout = Layout.of(list_tensors(network))
    check_findings(config.debias, network, classes)
    side = size or config.data.image_size or ANY
    home = config.model.norm == "home" and bool(list_norms(network))
    about = About(len(classes), (side, side, channels), network.channels, bool(network.cut), home)
    stages = _make_stages(config, method, network, classes, about)
    _check_models(config, method, stages)
    setting = Setting(
        config,
        layout,
        tuple(_make_stage_setting(stage, config.run) for stage in stages),
        classes,
        channels,
        needs=method.needs,
        convs=list_convs(network),
        norms=list_norms(network),
        examples=dict(examples or {}),
        told=_list_exact_numbers(method, stages, len(classes)),
    )
    make_defenses(setting, loaded.source)
    return Plan(
        config, method, optimizer, layout, stages, classes, channels, card, setting
    ), network


def _check_weights(config: Config, method: Method) -> None:
    """Whoever wants sites to count otherwise needs a method and a rule that it matters to."""
    rule, weigh = config.aggregate.rule, "weigh" in config.debias.remedies
    other = config.aggregate.weights == "examples" or weigh
    if method.exact and (rule != "mean" or other):
        raise ConfigError(
            f"the state of {config.method.name} is right for its own mean only",
            where="aggregate",
            hint='Leave rule = "mean", weights = "method" and no remedy "weigh", or choose '
            "another method.",
        )
    if other and not RULES[rule].weighs:
        raise ConfigError(
            f"{rule!r} lets every site count the same, whatever its weight",
            where="debias.remedies" if weigh else "aggregate.weights",
            hint='Use rule = "mean" or "norm-clip"'
            + (', or the remedy "leave-out".' if weigh else ', or leave weights at "method".'),
        )


def _check_models(config: Config, method: Method, stages: tuple[StagePlan, ...]) -> None:
    """A method that works on every site's own model needs whole ones, and trusts them all."""
    if method.needs != "all":
        return
    if config.aggregate.rule != "mean":
        raise ConfigError(
            f"{config.method.name} learns from every site's model, those too that "
            f"{config.aggregate.rule!r} would keep out of the mean",
            where="aggregate.rule",
            hint='Leave it at "mean", or choose another method.',
        )
    home = [name for stage in stages for name in stage.home]
    if home:
        raise ConfigError(
            f"{config.method.name} needs every site's whole model, and {home[0]!r} stays home",
            where="model.norm",
            hint='Use "batch" or "group", or choose another method.',
        )


def _make_stage_setting(plan: StagePlan, run: Run) -> StageSetting:
    """What a defense may know of a stage."""
    stage = plan.stage
    arrive, train, closing = (
        tuple(p.name for p in phases) for phases in (stage.arrive, stage.train, stage.last)
    )
    before = (*stage.arrive, *stage.train)
    return StageSetting(
        stage.name,
        plan.first,
        plan.last,
        plan.schema,
        plan.answers,
        arrive,
        train,
        closing,
        epochs=sum(count_epochs(phase, run.local_epochs) for phase in before),
        loose=tuple(phase.name for phase in before if getattr(phase, "sees", "data") == "data"),
    )


def _list_exact_numbers(
    method: Method, stages: tuple[StagePlan, ...], classes: int
) -> tuple[str, ...]:
    """The exact numbers that a method makes every site tell, beside how many images it has."""
    facts = method.facts(np.zeros(1, np.int64), classes)
    named = [name for name in facts if name != "examples"]
    beside = [f.name for s in stages for f in s.schema.up if f.name.startswith("counts/")]
    return tuple(dict.fromkeys([*named, *method.counts, *beside]))


def _make_stages(
    config: Config, method: Method, network: Network, classes: tuple[str, ...], about: About
) -> tuple[StagePlan, ...]:
    rule = config.aggregate.rule
    RULES[rule]
    layout = Layout.of(list_tensors(network))
    plans: list[StagePlan] = []
    learned: dict[str, Field] = {}  # what earlier stages shared: sites need its last value
    at = 1
    extra = config.debias.last_rounds
    method_run = config.run.model_copy(update={"rounds": config.run.rounds - extra})
    stages = method.stages(method_run)
    private = [n for n in config.release.defenses if n in DEFENSES and DEFENSES[n].formal]
    for number, stage in enumerate(add_remedies(stages, config.debias, classes)):
        if any(DEFENSES[name].acts == "training" for name in private):
            stage = replace(stage, arrive=replace_real_pushes(stage.arrive), finish=stage.last)
        table = method.table if stage.table is None else stage.table
        given = {a for row, a in table.items() if row != "statistic"}
        if rule != "mean" and "mean" not in given and given != {"frozen"}:
            raise ConfigError(
                f"{config.method.name} has no plain mean that {rule!r} could stand for",
                where="aggregate.rule",
                hint='Leave it at "mean", or choose another method.',
            )
        answers = resolve_table(
            list_tensors(network),
            apply_user_choices(table, rule=rule, norm=config.model.norm),
            config.method.name,
        )
        fields = make_model_fields(layout, answers)
        learned |= {f.name: replace(f, rule="mean") for f in fields}
        travels = {f.name for f in fields}
        kept = tuple(f for name, f in learned.items() if name not in travels)
        shared = layout.region(f.name.removeprefix("model/") for f in fields)
        down, up = method.messages(stage.name, replace(about, shared=shared))
        counted = ("examples", "steps") if stage.trains else ("examples",)
        schema = Schema(
            down=fields + kept + down,
            up=fields + up,
            counts=method.counts if private else (*counted, *method.counts),
            metrics=() if private else METRICS,
        )
        _check_rules(schema, config)
        _check_phases(stage)
        left = (method_run if number < len(stages) else config.run).rounds - at + 1
        rounds = left if stage.rounds is None else min(stage.rounds, left)
        if rounds <= 0 and plans:
            continue  # the run ends before this stage begins
        masked = _make_masked_schema(schema, config, method)
        plans.append(StagePlan(stage, at, at + rounds - 1, schema, answers, shared, masked))
        at += rounds
    return tuple(plans)


def _make_masked_schema(schema: Schema, config: Config, method: Method) -> Schema | None:
    """What travels with secure sums, where a sum is all that the server needs."""
    if not config.release.secure_sum:
        return None
    if method.needs == "all":
        raise ConfigError(
            f"{config.method.name} works on every site's own model, which a sum hides",
            where="release.secure_sum",
            hint="Leave it out, or choose another method.",
        )
    if method.pooled or not schema.up:
        raise ConfigError(
            f"with {config.method.name} nothing is added up over sites",
            where="release.secure_sum",
            hint="Leave it out, or choose another method.",
        )
    check_installed()
    check_masked(schema, config.aggregate)
    return masked_schema(schema, config.aggregate)


def _is_usable_alone(phase: Phase) -> bool:
    """Whether a phase makes sense where nothing is ever sent."""
    return not getattr(phase, "sends", False)


def _check_phases(stage: Stage) -> None:
    """A phase draws under its name, so two of one name would draw the same."""
    turn, closing = [[p.name for p in ps] for ps in ((*stage.arrive, *stage.train), stage.last)]
    names = turn if len(set(turn)) < len(turn) else closing
    if len(set(names)) < len(names):
        raise ConfigError(
            f"stage {stage.name!r} has two phases of one name ({', '.join(names)})",
            where="method.name",
            hint="Give each phase a name of its own.",
        )


def _check_rules(schema: Schema, config: Config) -> None:
    """Every rule exists and accepts what it is to add up, and the sites count what it needs."""
    method = config.method.name
    for name in dict.fromkeys(f.rule for f in schema.up_added):
        RULES[name](Group(tuple(f for f in schema.up if f.rule == name)), config.aggregate)
        missing = sorted(set(RULES[name].counts) - set(schema.counts))
        if missing:
            raise ConfigError(
                f"{name!r} needs every site to count {missing[0]!r}, and with {method} none does",
                where="aggregate.rule",
                hint="Choose another rule.",
            )
    _check_bucketing(schema, config)


def _check_bucketing(schema: Schema, config: Config) -> None:
    """Buckets need a rule that sees single updates, and that a mean of some means something to."""
    if config.aggregate.bucket == 1 or not schema.up_added:
        return
    rules = {f.rule: RULES[f.rule] for f in schema.up_added}
    seeing = {name: rule for name, rule in rules.items() if issubclass(rule, PerSiteRule)}
    split = [name for name, rule in seeing.items() if not rule.merges]
    if seeing and not split:
        return
    raise ConfigError(
        f"{split[0]!r} cannot work on means of updates"
        if split
        else f"{', '.join(map(repr, rules))} adds up, which buckets do not change",
        where="aggregate.bucket",
        hint="Leave it at 1, or choose a rule that stands hostile sites (aggregate.rule).",
    )


def find_rule_shortage(plan: Plan, sites: int) -> str | None:
    """Why so many sites in a round are too few for one of the run's rules, or None."""
    options = plan.config.aggregate
    for stage in plan.stages:
        for name in dict.fromkeys(f.rule for f in stage.schema.up_added):
            group = Group(tuple(f for f in stage.schema.up if f.rule == name))
            if shortage := find_shortage(RULES[name](group, options), options, sites):
                return shortage
    return None
