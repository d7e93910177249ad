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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from vitrail.audit.gather import TABLES, told_tables
from vitrail.config import Loaded
from vitrail.engine.checkpoint import Checkpoints, Identity
from vitrail.engine.federation import Federation, dealt
from vitrail.engine.folder import RunFolder
from vitrail.engine.hire import host_of
from vitrail.engine.host import Host
from vitrail.engine.journal import COLUMNS, Journal
from vitrail.engine.loaded import Run, write_card
from vitrail.engine.outcome import RoundReport
from vitrail.engine.plan import Plan
from vitrail.engine.pool import InProcess
from vitrail.engine.reference import with_features
from vitrail.engine.run import plan_of
from vitrail.engine.settle import fingerprint, settled
from vitrail.engine.sitefolder import SiteFolder
from vitrail.engine.tasks import Down, Reply, Task
from vitrail.engine.versions import Versions
from vitrail.errors import VitrailError
from vitrail.files import write_json, write_text
from vitrail.flower.agreement import audited, lacking, referenced
from vitrail.flower.envelope import Farewell, Hello, Letter, Turn, mark, seal, unseal
from vitrail.flower.home import Home
from vitrail.flower.trouble import Refusal, spoken
from vitrail.methods.server import Server
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network
from vitrail.release.asset import unpacked
from vitrail.release.cover import announced
from vitrail.release.door import Door
from vitrail.release.message import digest
from vitrail.release.pact import Vouch
from vitrail.rng import Key, simulated_site

PARTED = "parted"
"""The file that says the coordinator has everything it needs from this site."""

Answer = tuple[dict[str, Any], Mapping[str, Tensor]]


@dataclass(frozen=True)
class _Ground:
    """A run at this site, ready to play: all that follows from its configuration."""

    folder: RunFolder
    plan: Plan
    network: Network
    federation: Federation


class Station:
    """Answers the coordinator's messages. `seeded` draws as a simulation does, for tests only;
    `vouch` signs for this site and knows the others."""

    def __init__(self, home: Home, seeded: bool = False, vouch: Vouch | None = None) -> None:
        self.home = home
        self.seeded = seeded
        self.vouch = vouch

    def answer(self, raw: bytes) -> bytes:
        """The reply to a message; that there is none is a reply too, with the kind of reason."""
        run, site, kind = "", self.home.name, "error"
        body: dict[str, Any] = {}
        tensors: Mapping[str, Tensor] = {}
        try:
            letter = unseal(raw)
            run = letter.run
            if letter.site != site:
                raise Refusal(f"this is site {site!r}, and the message is for {letter.site!r:.40}")
            body, tensors = self._handler(letter.kind)(letter)
            kind = letter.kind
        except Exception as err:  # of others Flower would send the text, paths and all
            body = {"sentence": spoken(err)}
            known = isinstance(err, VitrailError)
            self._log(run, str(err) if known else traceback.format_exc())
        return seal(kind, run, site, body, tensors, answers=mark(raw))

    def _handler(self, kind: str) -> Callable[[Letter], Answer]:
        known = {"hello": self._hello, "turn": self._turn, "farewell": self._farewell}
        if kind not in known:
            raise Refusal(f"a message of the kind {kind!r:.40} is not known here")
        return known[kind]

    def _log(self, run: str, text: str) -> None:
        """In the folder of the run where there is one, else in the site's."""
        with contextlib.suppress(Exception):  # a full disk must not keep the answer back
            folder = self.home.run_folder(run)
            if run and folder.config_file.exists():
                folder.log(text)
            else:
                self.home.log(f"run {run!r:.40}: {text}")

    def _hello(self, letter: Letter) -> Answer:
        """Agree to the terms, or not; read the images; tell what the method asks for."""
        asked = Hello.read(letter)
        folder, loaded = self.home.run_folder(letter.run), self.home.joined(asked.terms)
        loaded = replace(loaded, config=settled(loaded))
        begun = folder.config_file.exists()
        if begun and fingerprint(folder.open().config) != fingerprint(loaded.config):
            raise Refusal("this run has begun here under other terms")
        if not begun and not self.home.wait(letter.run, asked.terms, asked.patience):
            raise Refusal("the operator of this site has not agreed to the terms of this run")
        ground = self._ground(folder, folder.open() if begun else loaded)
        if not begun:
            if ground.plan.card.get("digest", "") != asked.weights:
                raise Refusal(
                    "this site's copy of the pretrained weights is not the coordinator's",
                    hint="Install the same version of the weights package everywhere.",
                )
            folder.create(loaded.config)
            self._settle(ground)
        told = self._enrolled(ground)
        if ground.plan.secure:
            secret = self._root() or simulated_site(loaded.config.run.seed, self.home.name)
            told["key"] = asdict(announced(secret, letter.run, self.home.name, 0, self.vouch))
        return told, {}

    def _enrolled(self, ground: _Ground) -> dict[str, Any]:
        """What the method asks for, and which classes there are none of; each has its line."""
        plan, name = ground.plan, self.home.name
        labels = ground.federation.images.labels[ground.federation.sites[name].train]
        ledger = SiteFolder(ground.folder.path, name).ledger()
        door = Door(name, ledger, plan.defenses(), plan.config.release.defenses)
        facts = door.enroll(plan.method.facts(labels, len(plan.classes)))
        if plan.private:  # which classes are missing is an exact fact about the labels
            return {"facts": facts, "lacks": []}
        lacks = lacking(labels, plan.classes)
        door.tell("classes", {each: {"held": each not in lacks} for each in plan.classes})
        return {"facts": facts, "lacks": lacks}

    def _settle(self, ground: _Ground) -> None:
        """What a run folder needs before its first round."""
        size = int(ground.federation.images.images.shape[1])
        write_card(ground.folder, ground.plan, (self.home.name,), size, public=False)
        Checkpoints(ground.folder.server).save_frozen(ground.network, ground.plan)
        values = FlatModel(ground.network).values.clone()
        self._save(ground, values, Versions(), 0)

    def _turn(self, letter: Letter) -> Answer:
        """Receive, arrive, evaluate, train, release."""
        asked = Turn.read(letter)
        task, closing = asked.task, asked.task.closing
        folder = self.home.run_folder(letter.run)
        if not folder.config_file.exists():
            raise Refusal(f"nobody here agreed to the run {letter.run!r:.40}")
        ground = self._ground(folder, folder.open())
        _check_round(task, ground.plan.config.run.rounds)
        stage = "closing" if closing else ground.plan.stage_at(task.round).stage.name
        own, assets = unpacked(letter.tensors)
        found = digest(task.names(stage), own)
        if found != asked.digest or task.site != self.home.name:
            raise Refusal("the message does not hold what it says it holds")
        if {asset.digest for asset in assets} != set(task.lacks):
            raise Refusal("the message does not bring the assets it says it brings")
        shelf = SiteFolder(folder.path, self.home.name).shelf
        for asset in assets:
            shelf.put(asset)
        began = time.perf_counter()
        pool = InProcess(self._host(ground, letter.run))
        try:
            reply = pool.host.turn(task, Down(task.round, own, found))
            received = sum(t.nbytes for t in letter.tensors.values())
            self._keep(ground, task, reply, received, time.perf_counter() - began)
            told = self._close(ground, pool.host, asked, own) if closing else {}
        finally:
            pool.close()
        return {**reply.header(), **told}, reply.update.tensors

    def _farewell(self, letter: Letter) -> Answer:
        """Keep what the others told for their audits; the run is over here."""
        folder = self.home.run_folder(letter.run)
        if not (folder.server / "finished").exists():
            raise Refusal(f"the run {letter.run!r:.40} was not closed here")
        tables, file = Farewell.read(letter).tables, folder.server / TABLES
        if file.exists():  # its own is what it told, not what comes back
            own = json.loads(file.read_text(encoding="utf-8"))
            tables = {**tables, **{n: t for n, t in own.items() if n == self.home.name}}
        if tables:
            write_json(file, tables)
        write_text(folder.server / PARTED, "")
        return {}, {}

    def _keep(
        self, ground: _Ground, task: Task, reply: Reply, received: int, seconds: float
    ) -> None:
        """The site's own metrics: of a message that comes twice, the last."""
        journal = Journal(ground.folder, ground.plan)
        ground.folder.cut_back(task.round - 1)
        report = RoundReport(task.round, [reply.update], accepted=(task.site,))
        report.count(task.site, reply.update.bytes, received)
        if task.closing:
            journal.closing(report)
        else:
            journal.round(report, seconds)
        ground.folder.write_parquet(COLUMNS)

    def _close(
        self, ground: _Ground, host: Host, asked: Turn, model: Mapping[str, Tensor]
    ) -> dict[str, dict[str, Any]]:
        """Keep the global model; train alone and tell what audits compare, where that is agreed."""
        values = host.start.clone()
        views = ground.plan.layout.views(values)
        for name, tensor in model.items():
            views[name.removeprefix("model/")].copy_(tensor)
        task = asked.task
        versions = Versions({task.site: task.base} if task.base else {})
        self._save(ground, values, versions, ground.plan.config.run.rounds)
        Journal(ground.folder, ground.plan).done()
        local = SiteFolder(ground.folder.path, task.site).model_file("local")
        if referenced(ground.plan) and not local.exists():
            host.alone(task.site)
        if not asked.audit:
            return {}
        if not audited(ground.plan):
            ground.folder.log("a message asks for an audit's figures against the terms: none left")
            return {}
        told = told_tables(Run(ground.folder.path), ground.federation, [task.site])
        return {"told": told[task.site]}

    def _save(self, ground: _Ground, values: Tensor, versions: Versions, round_: int) -> None:
        stage = ground.plan.stages[-1]
        server = Server(ground.plan.layout, stage.shared, stage.arrives, values)
        identity = Identity(
            config=fingerprint(ground.plan.config),
            data=ground.federation.digest(),
            weights=ground.plan.card.get("digest", ""),
        )
        Checkpoints(ground.folder.server).save(server, versions, round_, identity)

    def _ground(self, folder: RunFolder, loaded: Loaded) -> _Ground:
        federation = dealt(loaded)
        plan, network = plan_of(loaded, federation)
        plan.method.check_sites(plan.setting.examples, everybody=False)
        return _Ground(folder, plan, network, federation)

    def _root(self) -> Key | None:
        return None if self.seeded else self.home.secret()

    def _host(self, ground: _Ground, run: str) -> Host:
        host = host_of(ground.plan, ground.network, ground.federation, ground.folder.path)
        host.root, host.run, host.vouch = self._root(), run, self.vouch
        return with_features(host, ground.federation)


def _check_round(task: Task, rounds: int) -> None:
    """A run has the rounds that were agreed on, and one closing turn after them."""
    first, last = (rounds + 1, rounds + 1) if task.closing else (1, rounds)
    if not first <= task.round <= last:
        kind = "the closing turn" if task.closing else "a turn"
        raise Refusal(
            f"{kind} of round {task.round!s:.20} is none of the {rounds} rounds agreed on"
        )
