"""A site of a real federation: opens a message, plays the engine's turn, seals the reply.

Every message may meet a new process, so all that lasts is on disk in the site's own folder: its
state by round, its ledger, what its operator agreed to. The folder of a run at a site is a run
folder like any other: `vitrail explain` and `vitrail audit` work on it, with what this site has.
"""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.audit.audit_tables import (
    HISTOGRAMS,
    read_stored,
    tell_histograms,
)
from vitrail.config import Loaded
from vitrail.engine.data_pins import PINS_FILE, take_pinned, write_pins
from vitrail.engine.federation import load_federation
from vitrail.engine.plan import Plan
from vitrail.engine.resolve_config import fingerprint_run, resolve_config
from vitrail.engine.run import plan_run
from vitrail.engine.site_turn import Host
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.storage.run_folder import AUDIT_TABLES_FILE, RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.tasks import RoundMessage
from vitrail.engine.workers.make_pool import make_host
from vitrail.engine.workers.pool import InProcessPool
from vitrail.errors import VitrailError
from vitrail.files import write_json, write_text
from vitrail.flower.envelope import (
    Farewell,
    Hello,
    OpenedMessage,
    Shares,
    StepMessage,
    TurnRequest,
    compute_message_id,
    seal,
    unseal,
)
from vitrail.flower.run_terms import (
    find_missing_classes,
    get_runtime,
    is_audited,
    make_agreed_plan,
)
from vitrail.flower.site.consent import summarize_terms
from vitrail.flower.site.ledger_witness import LedgerWitness
from vitrail.flower.site.lifetime_forecast import LifetimeForecast, forecast_lifetime
from vitrail.flower.site.lifetime_history import write_history
from vitrail.flower.site.lifetime_ledger import LifetimeLedger
from vitrail.flower.site.message_checks import (
    check_round,
    check_run_name,
    check_task,
    check_unfinished,
    check_versions,
)
from vitrail.flower.site.network_size import check_network_size
from vitrail.flower.site.policy_check import find_breaches
from vitrail.flower.site.site_config import FAREWELL_FILE, SiteConfig
from vitrail.flower.site.site_errors import Refusal, describe_error
from vitrail.flower.site.site_events import write_answered, write_trouble
from vitrail.flower.site.site_run import SiteRun
from vitrail.flower.site.told_sites import compute_least_cohort, note_told_sites
from vitrail.flower.terms_signature import find_valid_signers
from vitrail.log_file import begin_log, is_json_log
from vitrail.methods.base.method import RunSetup
from vitrail.release.asset import unpack_assets
from vitrail.release.door import Door
from vitrail.release.message import digest
from vitrail.rng import Key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import attach_features
from vitrail.secure_aggregation.cohort import Signer

Answer = tuple[dict[str, Any], Mapping[str, Tensor]]
_LONGEST_NAME = 64


class SiteServer:
    """Answers the coordinator's messages. `seeded` draws as a simulation does, for tests only;
    `signer` signs for this site and knows the others; `keys` is the folder of whoever may sign
    terms. The images and the network of the run that was asked about last are kept."""

    def __init__(
        self,
        config: SiteConfig,
        seeded: bool = False,
        signer: Signer | None = None,
        keys: Path | None = None,
    ) -> None:
        self.config = config
        self.keys = keys
        self.seeded = seeded
        self.signer = signer
        self._current: tuple[str, SiteRun] | None = None
        self._host: Host | None = None
        self._shares: Shares | None = None
        self._witness: LedgerWitness | None = None
        self._held_to_policy = ""  # the run whose terms were compared with the policy last

    def answer(self, raw: bytes) -> bytes:
        """The reply to a message; that there is none is a reply too, with the kind of reason."""
        run, site, kind, asked = "", self.config.name, "error", ""
        body: dict[str, Any] = {}
        tensors: Mapping[str, Tensor] = {}
        try:
            message = unseal(raw)
            run, asked = message.run[:_LONGEST_NAME], message.kind
            if message.site != site:
                raise Refusal(f"this is site {site!r}, and the message is for {message.site!r:.40}")
            check_run_name(message.run)
            body, tensors = self._handler(message.kind)(message)
            kind = message.kind
            with contextlib.suppress(Exception):  # what is shown must not keep the answer back
                write_answered(self.config, message)
        except Exception as err:  # of others Flower would send the text, paths and all
            body = {"sentence": describe_error(err)}
            known = isinstance(err, VitrailError)
            self._log(run, str(err) if known else traceback.format_exc())
            write_trouble(self.config, run, asked, str(err) if known else repr(err))
        return seal(kind, run, site, body, tensors, answers=compute_message_id(raw))

    def _handler(self, kind: str) -> Callable[[OpenedMessage], Answer]:
        known = {
            "hello": self._hello,
            "start": self._start,
            "turn": self._turn,
            "step": self._step,
            "compare": self._compare,
            "farewell": self._farewell,
        }
        if kind not in known:
            raise Refusal(f"a message of the kind {kind!r:.40} is not known here")
        return known[kind]

    def _log(self, run: str, text: str) -> None:
        """In the folder of the run where there is one, else in the site's."""
        with contextlib.suppress(Exception):  # a full disk must not keep the answer back
            folder = self.config.run_folder(run)
            if run and folder.config_file.exists():
                folder.log(text)
            else:
                self.config.log(f"run {run!r:.40}: {text}")

    def _hello(self, message: OpenedMessage) -> Answer:
        """Agree to the terms, or not; read the images; tell what the method asks for."""
        asked = Hello.read(message)
        check_versions(asked.versions, get_runtime(asked.terms))
        folder = self.config.run_folder(message.run)
        begun = folder.config_file.exists()
        loaded = self._load_terms(asked, folder if begun else None)
        if not begun:
            check_network_size(loaded, self.config.limits)
        signed = find_valid_signers(asked.terms, asked.signatures, self.keys)
        self._check_policy(message.run, make_agreed_plan(loaded)[0], signed)
        if not begun:
            self._current = None  # other terms may have been refused under this name
        site_run = self._open_run(message.run, folder.open() if begun else loaded)
        self._check_policy(message.run, site_run.plan, signed, site_run.count_images())
        pinned = begun and (folder.path / PINS_FILE).exists()
        forecast = None if pinned or self.seeded else self._forecast(message.run, site_run, begun)
        if not begun and not self._is_agreed(message.run, asked, site_run, forecast):
            self._current = None
            raise Refusal("the operator of this site has not agreed to the terms of this run")
        if not begun:
            loaded, site_run = self._read_drawings(message.run, asked, loaded, site_run)
        if not begun and site_run.plan.card.get("digest", "") != asked.weights:
            raise Refusal(
                "this site's copy of the pretrained weights is not the coordinator's",
                hint="Install the same version of the weights package everywhere.",
            )
        if forecast is not None and not (begun and forecast.is_counted(message.run)):
            forecast.begin(message.run)  # before the folder, and before anything leaves
        if not begun:
            folder.create(loaded.config)
            begin_log(folder.log_file, is_json_log(self.config.log_file))
        if forecast is not None:
            self._write_forecast(folder, forecast)
        if not Checkpoints(folder.server).rounds():  # new, or killed before it was ready
            write_pins(site_run.federation.images_as_read, folder.path, self.config.secret())
            site_run.prepare_folder()
        return self._enroll(site_run), {}

    def _load_terms(self, asked: Hello, begun: RunFolder | None) -> Loaded:
        """The terms with what is this site's own. A run that has begun goes on under its terms
        only; what the site's file leaves out may be as it was before a new version, or as now."""
        drawn = None if begun is None else begun.open().config.data.annotations
        for before in (False,) if begun is None else (False, True):
            loaded = self.config.merge_terms(asked.terms, before, drawn)
            loaded = replace(loaded, config=resolve_config(loaded))
            if begun is None or fingerprint_run(begun.open()) == fingerprint_run(loaded):
                return loaded
        raise Refusal("this run has begun here under other terms")

    def _read_drawings(
        self, run: str, asked: Hello, loaded: Loaded, site_run: SiteRun
    ) -> tuple[Loaded, SiteRun]:
        """What was drawn on images while the operator read the terms counts from the first turn."""
        again = self._load_terms(asked, None)
        if again.config.data.annotations == loaded.config.data.annotations:
            return loaded, site_run
        self._current = None
        return again, self._open_run(run, again)

    def _forecast(self, run: str, site_run: SiteRun, begun: bool) -> LifetimeForecast:
        """What the images would have spent after this run; refused where the policy says so. One
        that was killed before its images were pinned is counted again if some came since."""
        forecast = forecast_lifetime(self.config, site_run.plan, site_run.federation)
        breach = forecast.find_breach(self.config.policy)
        if breach is not None and not (begun and forecast.is_counted(run)):
            self._log(run, breach.describe())
            self._current = None
            raise Refusal("the terms break this site's policy (policy.lifetime_epsilon)")
        return forecast

    def _write_forecast(self, folder: RunFolder, forecast: LifetimeForecast) -> None:
        """Into the ledger of the run, once."""
        ledger = SiteFolder(folder.path, self.config.name).ledger()
        if not any(line.get("kind") == "lifetime" for line in ledger.lines()):
            ledger.write({"kind": "lifetime", **forecast.describe(self.config.policy)})
        write_history(self.config, folder)

    def _is_agreed(
        self, run: str, asked: Hello, site_run: SiteRun, forecast: LifetimeForecast | None
    ) -> bool:
        """Whether the operator says yes to what these terms mean for the images of this site."""
        examples = site_run.count_images()
        patients = site_run.federation.count_patients().get(self.config.name)
        for defense in site_run.plan.defenses():
            defense.check_patients(self.config.name, patients)
        lines = summarize_terms(self.config, asked.terms, examples, patients)
        lines += [] if forecast is None else forecast.list_lines(self.config.policy)
        return self.config.wait(run, asked.terms, lines, asked.patience)

    def _check_policy(
        self, run: str, plan: Plan, signed: Collection[str], examples: int | None = None
    ) -> None:
        """Refuse terms that break the site's policy. The numbers of the policy stay here."""
        policy = self.config.policy
        breaches = list(find_breaches(policy, plan, self.config.name, examples, signed))
        for breach in breaches:
            self._log(run, breach.describe())
        if breaches:
            self._current = None
            lines = ", ".join(dict.fromkeys(f"policy.{breach.line}" for breach in breaches))
            raise Refusal(f"the terms break this site's policy ({lines})")

    def _start(self, message: OpenedMessage) -> Answer:
        """Hear how much this site and the largest one count, before the first round."""
        folder = self.config.run_folder(message.run)
        if not folder.config_file.exists():
            raise Refusal(f"nobody here agreed to the run {message.run!r:.40}")
        self._hear_shares(folder, Shares.read(message))
        return {}, {}

    def _hear_shares(self, folder: RunFolder, shares: Shares) -> None:
        """Write down what has changed; refuse to be part of a sum that one site rules."""
        if shares != self._shares:
            folder.log(shares.describe())
            note_told_sites(folder, shares.sites)
            self._shares = shares
        most = self.config.policy.largest_weight
        if most is not None and shares.largest > most:
            folder.log(f"one site would count {shares.largest:.1%}: over policy.largest_weight")
            raise Refusal("the shares of this run break this site's policy (policy.largest_weight)")

    def _enroll(self, site_run: SiteRun) -> dict[str, Any]:
        """What the method asks for, and which classes there are none of; each has its line."""
        plan, name = site_run.plan, self.config.name
        labels = site_run.federation.images.labels[site_run.federation.sites[name].train]
        ledger = SiteFolder(site_run.folder.path, name).ledger()
        door = Door(name, ledger, plan.defenses(), plan.config.release.defenses)
        patients = site_run.federation.count_patients().get(name)
        facts = door.enroll(plan.method.facts(labels, len(plan.classes)), patients)
        if plan.private or not self.config.policy.histograms:  # exact facts about the labels
            return {"facts": facts, "lacks": []}
        lacks = find_missing_classes(labels, plan.classes)
        door.release_findings(
            "classes", {label: {"held": label not in lacks} for label in plan.classes}
        )
        return {"facts": facts, "lacks": lacks}

    def _turn(self, message: OpenedMessage) -> Answer:
        """Receive, arrive, evaluate, train, release."""
        asked = TurnRequest.read(message)
        task, closing = asked.task, asked.task.closing
        folder = self.config.run_folder(message.run)
        if not folder.config_file.exists():
            raise Refusal(f"nobody here agreed to the run {message.run!r:.40}")
        if problem := self.config.limits.find_problem(self.config.folder):
            raise Refusal(problem)
        if not closing:
            check_unfinished(folder)
        site_run = self._open_run(message.run, folder.open())
        if self._held_to_policy != message.run:  # it may have been tightened since the run began
            signers, examples = self.config.policy.signers, site_run.count_images()
            self._check_policy(message.run, site_run.plan, signers, examples)
            self._held_to_policy = message.run
        check_versions(asked.versions, site_run.plan.config.model.runtime)
        check_task(task, site_run.plan, self.config.policy)
        self._hear_shares(folder, asked.shares)
        stage = "closing" if closing else site_run.plan.stage_at(task.round).stage.name
        tensors, assets = unpack_assets(message.tensors)
        mark = digest(task.make_digest_header(stage), tensors)
        if mark != asked.digest or task.site != self.config.name:
            raise Refusal("the message does not hold what it says it holds")
        if {asset.digest for asset in assets} != set(task.lacks):
            raise Refusal("the message does not bring the assets it says it brings")
        witness = self._get_witness(folder, message.run)
        witness.take(asked.countersigned)
        store = SiteFolder(folder.path, self.config.name).assets
        for asset in assets:
            store.put(asset)
        began = time.perf_counter()
        pool = InProcessPool(self._get_host(site_run, message.run))
        try:
            reply = pool.host.turn(task, RoundMessage(task.round, tensors, mark))
            received = sum(t.nbytes for t in message.tensors.values())
            site_run.write_metrics(task, reply, received, time.perf_counter() - began)
            separability = site_run.close(pool.host, asked, tensors) if closing else {}
        finally:
            pool.close()
        told = witness.tell(task.round)
        return {**reply.header(), **separability, **told}, reply.update.tensors

    def _step(self, message: OpenedMessage) -> Answer:
        """A step of a secure sum: keys, shares, signatures, unmasking. Nothing is trained."""
        request = StepMessage.read(message).request
        folder = self.config.run_folder(message.run)
        if not folder.config_file.exists():
            raise Refusal(f"nobody here agreed to the run {message.run!r:.40}")
        check_unfinished(folder)
        site_run = self._open_run(message.run, folder.open())
        if request.site != self.config.name:
            raise Refusal("the message does not hold what it says it holds")
        check_round(request.round, site_run.plan)
        return self._get_host(site_run, message.run).exchange(request).header(), {}

    def _compare(self, message: OpenedMessage) -> Answer:
        """Tell how this site's B half lies along the directions that all sites' A halves gave;
        once, because made-up means would give others each time, and tell features one by one."""
        folder = self.config.run_folder(message.run)
        current = self._current
        if not (folder.server / "finished").exists() or current is None:
            raise Refusal(f"the run {message.run!r:.40} was not closed here")
        site_run = current[1]
        if current[0] != message.run or not is_audited(site_run.plan):
            raise Refusal("the terms ask for no audit's figures: none left")
        request = Farewell.read(message)
        self._get_witness(folder, message.run).take(request.countersigned)
        run = Run(folder.path)
        if told := read_stored(run).get(self.config.name, {}).get(HISTOGRAMS):
            return {HISTOGRAMS: told}, {}
        if self._shares is not None and len(request.tables) > self._shares.sites:
            raise Refusal("the message compares with more sites than take part")
        self._keep_tables(folder, request.tables)
        tell_histograms(run, site_run.federation, [self.config.name])
        return {HISTOGRAMS: read_stored(run)[self.config.name].get(HISTOGRAMS)}, {}

    def _keep_tables(self, folder: RunFolder, tables: Mapping[str, dict[str, Any]]) -> None:
        """What the others told, beside what this site told itself, which nobody can change."""
        file = folder.server / AUDIT_TABLES_FILE
        if file.exists():  # its own is what it told, not what comes back
            kept = json.loads(file.read_text(encoding="utf-8"))
            tables = {**tables, **{n: t for n, t in kept.items() if n == self.config.name}}
        if tables:
            write_json(file, dict(tables))

    def _farewell(self, message: OpenedMessage) -> Answer:
        """Keep what the others told for their audits; the run is over here."""
        folder = self.config.run_folder(message.run)
        if not (folder.server / "finished").exists():
            raise Refusal(f"the run {message.run!r:.40} was not closed here")
        farewell = Farewell.read(message)
        self._get_witness(folder, message.run).take(farewell.countersigned)
        self._keep_tables(folder, farewell.tables)
        write_text(folder.server / FAREWELL_FILE, "")
        if not self.seeded:
            LifetimeLedger(self.config).settle()
            write_history(self.config, folder)
        self._current = self._host = None
        return {}, {}

    def _open_run(self, run: str, loaded: Loaded) -> SiteRun:
        """What was built for this run before, or all of it anew: one run at a time."""
        if self._current is not None and self._current[0] == run:
            return self._current[1]
        self._host = None
        folder = self.config.run_folder(run)
        pin = partial(take_pinned, folder=folder.path, secret=self.config.secret())
        federation = load_federation(loaded, pin if folder.config_file.exists() else None)
        plan, network = plan_run(loaded, federation)
        setup = RunSetup(plan.optimizer, network, examples=plan.setting.examples)
        plan.method.check_run(setup)
        self._current = (run, SiteRun(self.config.name, folder, plan, network, federation))
        return self._current[1]

    def _get_witness(self, folder: RunFolder, run: str) -> LedgerWitness:
        """Of the run that was asked about last: its ledger is walked once, then walked on."""
        if self._witness is None or self._witness.run != run:
            site = SiteFolder(folder.path, self.config.name)
            self._witness = LedgerWitness(site, run, self.signer, strict=not self.seeded)
        return self._witness

    def _root(self) -> Key | None:
        return None if self.seeded else self.config.secret()

    def _get_host(self, site_run: SiteRun, run: str) -> Host:
        """The host of the run, with features computed once."""
        if self._host is None:
            folder = site_run.folder.path
            host = make_host(site_run.plan, site_run.network, site_run.federation, folder)
            host.root, host.run, host.signer = self._root(), run, self.signer
            self._host = attach_features(host, site_run.federation)
        policy = self.config.policy
        self._host.least = compute_least_cohort(site_run.folder, site_run.plan, policy)
        return self._host
