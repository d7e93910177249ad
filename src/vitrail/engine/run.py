"""A whole run: assemble, plan, play the rounds, write everything down, resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from vitrail.config import Loaded, to_stored_tree
from vitrail.engine.alarms import Alarms
from vitrail.engine.federation import Federation, load_federation
from vitrail.engine.loggers import LoggerGroup, check_loggers
from vitrail.engine.members import Members, SimulatedSites
from vitrail.engine.plan import Plan, find_rule_shortage, make_plan
from vitrail.engine.resolve_config import fingerprint_config, pick_device, resolve_config
from vitrail.engine.round import close_run, play_round
from vitrail.engine.sampling import compute_sample_size, order_sites
from vitrail.engine.server_training import make_server_trainer
from vitrail.engine.site_versions import Versions
from vitrail.engine.storage.checkpoint import Checkpoints, Identity
from vitrail.engine.storage.journal import COLUMNS, Journal
from vitrail.engine.storage.model_card import write_card
from vitrail.engine.storage.run_end import refuse_remote
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.storage.stop_request import clear_stop_request, has_stop_request
from vitrail.engine.storage.transcript import Transcript
from vitrail.engine.workers.pool import Pool
from vitrail.engine.workers.processes import WorkerProcesses, start_workers
from vitrail.errors import ConfigError, RunError, StoppedError
from vitrail.files import write_json
from vitrail.methods.base.method import RunSetup
from vitrail.methods.base.server import Server
from vitrail.methods.base.server_trainer import ServerTrainer
from vitrail.metrics.classification import compute_classification_metrics
from vitrail.models.flat import FlatModel
from vitrail.models.heads.part_head import PartHead
from vitrail.models.network import Network
from vitrail.poisoning import POISONINGS
from vitrail.secure_aggregation.graph import compute_threshold


@dataclass(frozen=True)
class Progress:
    """What a caller is told after each round (`on_round`)."""

    round: int
    rounds: int
    accuracy: float | None
    loss: float | None
    sites: int
    dropped: int
    refused: int
    bytes: int
    seconds: float
    note: str = ""


OnRound = Callable[[Progress], None]


def start(
    loaded: Loaded,
    out: str | Path,
    on_round: OnRound | None = None,
    crew: WorkerProcesses | None = None,
) -> RunFolder:
    """Start a run in a new folder and play it to its end, with a crew of the caller's if given."""
    folder = RunFolder(out)
    folder.check_free()
    with start_workers(loaded.config.run) if crew is None else nullcontext(crew) as hands:
        _start(loaded, folder, on_round, hands)
    return folder


def _start(
    loaded: Loaded, folder: RunFolder, on_round: OnRound | None, crew: WorkerProcesses
) -> None:
    try:
        loaded = replace(loaded, config=resolve_config(loaded))
        federation = load_federation(loaded)
        plan, network = plan_run(loaded, federation)
        pick_device(loaded.config.run.device)
        _check_sites(plan, federation)
        trainer = make_server_trainer(plan, network, _get_size(federation))
        setup = RunSetup(
            plan.optimizer,
            network,
            plan.image_shape(_get_size(federation)),
            plan.setting.examples,
            every_site=True,
            trainer=trainer,
        )
        check_before_start(plan, setup)
    except ConfigError as err:
        raise err.in_file(loaded.source) from None
    folder.create(loaded.config)
    with lock_folder(folder):
        Engine(folder, plan, network, SimulatedSites(federation, crew), on_round, trainer).run(
            fresh=True
        )


def resume(
    out: str | Path,
    workers: int | None = None,
    on_round: OnRound | None = None,
    crew: WorkerProcesses | None = None,
) -> RunFolder:
    """Go on after a stop or a crash; the end is the same, to the bit, as without it."""
    folder = RunFolder(out)
    loaded = folder.open()
    if (folder.server / "finished").exists():
        Checkpoints(folder.server).check_config(fingerprint_config(loaded.config))
        return folder
    refuse_remote(folder, loaded.config)
    hands = start_workers(loaded.config.run, workers) if crew is None else nullcontext(crew)
    with lock_folder(folder), hands as crew:
        folder.sweep_up()
        federation = load_federation(loaded)
        plan, network = plan_run(loaded, federation)
        members = SimulatedSites(federation, crew, workers)
        trainer = make_server_trainer(plan, network, _get_size(federation))
        plan.method.check_run(RunSetup(plan.optimizer, network, trainer=trainer))
        Engine(folder, plan, network, members, on_round, trainer).run(fresh=False)
    return folder


def plan_run(loaded: Loaded, federation: Federation) -> tuple[Plan, Network]:
    """The plan of a run on some images, and its network."""
    examples = {name: len(rows.train) for name, rows in federation.sites.items()}
    channels, size = _count_channels(federation), _get_size(federation)
    return make_plan(loaded, federation.images.classes, channels, examples, size)


def _check_sites(plan: Plan, federation: Federation) -> None:
    """A round that can never count is a mistake, not a long wait; so is a unit nobody knows."""
    patients = federation.count_patients()
    for defense in plan.defenses():
        for site in federation.sites:
            defense.check_patients(site, patients.get(site))
    for section in plan.config.hostile:
        POISONINGS[section.attack]().check(plan.stages[-1].schema)
    if plan.secure:
        check_secure_sum_sites(plan, len(federation.sites))
    run = plan.config.run
    wanted, count = run.min_sites, compute_sample_size(len(federation.sites), run.participation)
    if wanted > count and not plan.method.pooled:
        raise ConfigError(
            f"{wanted} sites are wanted in a round, and only {count} take part",
            where="run.min_sites",
        )
    if not plan.method.pooled and (shortage := find_rule_shortage(plan, count)):
        raise ConfigError(
            f"{shortage}: every round would be void",
            where="aggregate",
            hint="Let more sites take part, lower aggregate.byzantine or aggregate.trim, or choose "
            "another rule.",
        )


def check_secure_sum_sites(plan: Plan, sites: int) -> None:
    """Refuse secure sums over rounds of a single site."""
    if compute_sample_size(sites, plan.config.run.participation) < 2:
        raise ConfigError(
            "a secure sum of one site is that site's update",
            where="release.secure_sum",
            hint="Let at least 2 sites take part in a round (run.participation), or leave it out.",
        )
    stay = compute_threshold(compute_sample_size(sites, plan.config.run.participation))
    for defense in plan.defenses():
        if getattr(defense.options, "colluding", 0) >= stay:
            raise ConfigError(
                f"{defense.options.colluding} sites may collude, and a sum may have only {stay}",
                where=f"release.{defense.name}.colluding",
                hint="Assume fewer, or let more sites take part.",
            )


def check_before_start(plan: Plan, setup: RunSetup) -> None:
    """Refuse before the start what would fail later: a head over patches that does not fit its
    map, and whatever the method refuses."""
    if setup.image is not None and isinstance(setup.network.head, PartHead):
        height, width, channels = setup.image
        setup.network.eval()
        with torch.inference_mode():
            setup.network(torch.zeros(1, channels, height, width))
    plan.method.check_run(setup)
    check_loggers(plan.config.run.loggers)


@contextmanager
def lock_folder(folder: RunFolder) -> Iterator[None]:
    """Nobody else works in the folder inside the block."""
    folder.lock()
    try:
        yield
    finally:
        folder.unlock()


def _count_channels(federation: Federation) -> int:
    return int(federation.images.images.shape[3])


def _get_size(federation: Federation) -> int:
    """The pixels of an image's side."""
    return int(federation.images.images.shape[1])


@dataclass
class Engine:
    """A run and its members, from the first round or the newest checkpoint to the end."""

    folder: RunFolder
    plan: Plan
    network: Network
    members: Members
    on_round: OnRound | None
    trainer: ServerTrainer | None = None
    versions: Versions = field(default_factory=Versions)

    def run(self, fresh: bool) -> None:
        """Enroll or restore, then rounds, then the closing turn; stop cleanly whatever happens."""
        self.journal = Journal(self.folder, self.plan)
        self.checkpoints = Checkpoints(self.folder.server)
        self.server = self._server()
        self.alarms = Alarms(self.folder.server, self.plan.config.aggregate)
        self.identity = Identity(
            config=fingerprint_config(self.plan.config),
            data=self.members.digest(),
            weights=self.plan.card.get("digest", "") + self.plan.card.get("start", ""),
            public="" if self.trainer is None else self.trainer.digest(),
        )
        clear_stop_request(self.folder.path)
        begun = self._begin(fresh)
        self.alarms.restore(begun)
        loggers = self.journal.loggers = self._make_loggers()
        pool = self.members.pool(self.plan, self.network, self.folder)
        try:
            loggers.start(begun)
            self.members.prepare(self.plan, self.network, pool, self._report_features)
            self._rounds(pool, begun)
        finally:
            pool.close()
            loggers.close()
            self.folder.write_parquet(COLUMNS)

    def _make_loggers(self) -> LoggerGroup:
        """The loggers of this process; they see the figures that stand in the run folder."""
        config = self.plan.config
        settings = to_stored_tree(config)
        return LoggerGroup(config.run.loggers, self.folder.path, settings, self.folder.log)

    def _server(self) -> Server:
        stage = self.plan.stages[0]
        values = FlatModel(self.network).values.clone()
        server = Server(self.plan.layout, stage.shared, stage.arrives, values)
        server.start = values.clone()
        server.trainer = self.trainer
        server.secret = self.members.secret(self.plan, self.folder)
        return server

    def _begin(self, fresh: bool) -> int:
        """The round to go on after: 0 for a new run, else that of the newest checkpoint."""
        if fresh or self.checkpoints.newest() is None:
            self.server.roster = self.members.enroll(self.plan, self.folder)
            if self.plan.secure:
                check_secure_sum_sites(self.plan, len(self.server.roster))
            size, public, bits = self.members.image_size, self.members.public, self.members.bits
            write_card(self.folder, self.plan, tuple(self.server.roster), size, public, bits)
            counts = self.members.counts()
            if counts is not None:
                write_json(self.folder.path / "partition.json", counts)
            self.checkpoints.save_frozen(self.network, self.plan)
            self.checkpoints.save(self.server, self.versions, 0, self.identity)
            self.folder.cut_back(-1)
            self.journal.start(self.server.roster)
            for line in self.members.remarks():
                self.folder.log(line)
            return 0
        begun = self.checkpoints.load(self.server, self.versions, self.identity)
        noised = any(defense.noises_sums for defense in self.plan.defenses())
        if noised and self.plan.config.run.checkpoint_every > 1:
            self.checkpoints.check_sums(begun)
        self.folder.cut_back(begun)
        self.folder.log(f"resumed after round {begun}")
        return begun

    def _report_features(self, done: int, total: int) -> None:
        self._report_work(f"computing features {done}/{total}")

    def _report_work(self, note: str) -> None:
        """Tell the caller about work beside the rounds."""
        if self.on_round is not None:
            self.on_round(
                Progress(0, self.plan.config.run.rounds, None, None, 0, 0, 0, 0, 0.0, note)
            )

    def _rounds(self, pool: Pool, begun: int) -> None:
        run = self.plan.config.run
        transcript = Transcript(self.folder.server) if run.record_updates else None
        # a private sum that was sent must never be added up anew
        every = 1 if any(d.noises_sums for d in self.plan.defenses()) else run.checkpoint_every
        if begun == 0:
            self._evaluate(pool, 0)
        for number in range(begun + 1, run.rounds + 1):
            self._welcome(number)
            began = time.perf_counter()
            stage = self.plan.stage_at(number)
            self.server.shared, self.server.arrives = stage.shared, stage.arrives
            report = play_round(
                self.server, self.plan, pool, self.versions, number, transcript, self.alarms
            )
            for asset in self.server.assets.values():
                self.checkpoints.assets.put(asset)
            seconds = time.perf_counter() - began
            if not torch.isfinite(self.server.values).all():
                raise RunError(
                    f"the global model is no longer finite after round {number}",
                    where=str(self.folder.path),
                    hint="Lower optimizer.lr; the checkpoint before this round is intact.",
                )
            self.journal.write_round(report, seconds)
            if number % run.evaluate_every == 0:
                self._evaluate(pool, number)
            due = number % every == 0 or number == run.rounds
            if due or self.plan.secure:  # a sum that was unmasked is not asked for again
                self.folder.commit()
                self.checkpoints.save(self.server, self.versions, number, self.identity)
            self._tell(report, seconds)
            if number < run.rounds and has_stop_request(self.folder.path):
                self._stop(number)
        self._finish(pool)

    def _stop(self, number: int) -> None:
        """Somebody asked for a stop: end here, with everything on disk to go on from."""
        clear_stop_request(self.folder.path)
        self.folder.commit()
        self.checkpoints.save(self.server, self.versions, number, self.identity)
        self.folder.log(f"stopped after round {number}, as was asked")
        raise StoppedError(
            f"stopped after round {number}, as was asked",
            where=str(self.folder.path),
            hint="`vitrail resume` goes on.",
        )

    def _welcome(self, number: int) -> None:
        """Let sites in that came after the start."""
        joined = self.members.welcome(self.plan, self.folder, self.server.roster, number)
        if not joined:
            return
        self.server.roster |= joined
        size, public = self.members.image_size, self.members.public
        write_card(self.folder, self.plan, tuple(self.server.roster), size, public)
        for site in joined:
            self.folder.log(f"site {site} joins before round {number}")

    def _finish(self, pool: Pool) -> None:
        run = self.plan.config.run
        if run.rounds % run.evaluate_every:
            self._evaluate(pool, run.rounds)
        report = close_run(self.server, self.plan, pool, self.versions)
        self.journal.write_closing(report)
        self._tell(report, 0.0)
        self._train_references(pool)
        self.journal.write_finished()

    def _train_references(self, pool: Pool) -> None:
        """Each site alone on the same budget, where the method or the user wants it."""
        wanted = self.plan.config.run.local_reference
        if not (self.plan.method.reference if wanted is None else wanted):
            return
        root = self.folder.path
        order = order_sites({site: facts["examples"] for site, facts in self.server.roster.items()})
        missing = [s for s in order if not SiteFolder(root, s).model_file("local").exists()]
        for number, _ in enumerate(pool.train_alone(missing), 1):
            self._report_work(f"training sites alone {number}/{len(missing)}")

    def _evaluate(self, pool: Pool, number: int) -> None:
        """The global model on the server's own test images, where there are both."""
        rows, labels = self.members.held_out()
        if len(rows) and not self.plan.stage_at(max(1, number)).home:
            logits = pool.logits(self.server.values, rows)
            metrics = compute_classification_metrics(logits, labels, len(self.plan.classes))
            self.journal.write_server(number, metrics)

    def _tell(self, report: Any, seconds: float) -> None:
        if self.on_round is not None:
            accuracy, loss = self.journal.latest()
            self.on_round(
                Progress(
                    min(report.round, self.plan.config.run.rounds),
                    self.plan.config.run.rounds,
                    accuracy,
                    loss,
                    len(report.accepted),
                    len(report.dropped),
                    len(report.refused),
                    report.bytes_up + report.bytes_down,
                    seconds,
                    "closing" if report.round > self.plan.config.run.rounds else "",
                )
            )
