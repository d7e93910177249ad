"""The members of a run at the other end of a link."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.aggregate.bounded_weights import compute_shares
from vitrail.audit.audit_tables import HISTOGRAMS, SUMMARY
from vitrail.audit.detection.class_summary import ClassSummary
from vitrail.engine.members import Facts, Ints
from vitrail.engine.plan import Plan
from vitrail.engine.storage.asset_store import AssetStore
from vitrail.engine.storage.roster_log import ROSTER_FILE, RosterLog
from vitrail.engine.storage.run_folder import AUDIT_TABLES_FILE, RunFolder
from vitrail.engine.tasks import MissingReply, Reply, RoundMessage, Task
from vitrail.engine.weigh_sites import weigh_sites
from vitrail.engine.workers.pool import Pool
from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.files import load_or_create_secret, write_json
from vitrail.flower.coordinator.attendance import Attendance
from vitrail.flower.coordinator.head_keeper import HeadKeeper
from vitrail.flower.coordinator.late_sites import LateSites
from vitrail.flower.coordinator.message_sender import Content, MessageSender
from vitrail.flower.envelope import MAX_HEADER_BYTES, OpenedMessage
from vitrail.flower.keys import Keys
from vitrail.flower.link import Link
from vitrail.flower.plain_text import clean_text
from vitrail.flower.run_terms import is_audited, make_terms
from vitrail.flower.versions import list_versions
from vitrail.local.inputs import Rows
from vitrail.models.network import Network
from vitrail.release.asset import pack_assets
from vitrail.release.head_signatures import is_signed_by_node
from vitrail.rng import Key
from vitrail.secure_aggregation.steps import StepAnswer, StepRequest

_POLL_SECONDS = 1.0
_KEPT = 2**30  # what images may add to a reply; the guard counts them afterwards
_PARTING_SECONDS = 60.0
CLOSED_FILE = "closed.json"
"""The sites that answered the closing turn, until they were told that the run is over."""
_NO_IMAGES = "the coordinator of a federation has no images"


@dataclass
class RemoteSites:
    """Sites far away. `expected` are waited for at the start of a run, for `patience` seconds.

    `timeout` is how long one turn may take; a site that is away or too late is left out of that
    round and asked again in the next one.
    """

    link: Link
    run: str
    expected: int
    timeout: float = 600.0
    patience: float = 600.0
    lacking: dict[str, list[str]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    signatures: dict[str, str] = field(default_factory=dict)
    size: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    late: LateSites = field(default_factory=LateSites)
    node_keys: Keys | None = None
    attendance: Attendance = field(default_factory=Attendance)

    @property
    def image_size(self) -> int:
        """What the federation agreed on."""
        return self.size

    @property
    def public(self) -> bool:
        """Nobody else's images are for everybody."""
        return False

    @property
    def bits(self) -> int | None:
        """Each site's own: the coordinator has seen no image."""
        return None

    def secret(self, plan: Plan, folder: RunFolder) -> Key:
        """Made here once, kept in the server's folder, never sent."""
        del plan
        return Key(load_or_create_secret(folder.server / "secret", "the server's secret"))

    def enroll(self, plan: Plan, folder: RunFolder) -> Facts:
        """Wait for the sites, put the terms before each, and hear what it tells."""
        self.size = int(plan.config.data.image_size or 0)
        names = self._wait_for_sites()
        _check_suspected(plan, names)
        declined: dict[str, str] = {}
        self.late.note_asked(names)
        roster = self._take_in(plan, self._greet(plan, folder, names), declined)
        while roster and (unwilling := self._announce_shares(plan, folder, roster, roster)):
            declined |= unwilling
            roster = {name: facts for name, facts in roster.items() if name not in unwilling}
        self._record(folder, 0, roster, declined)
        if len(roster) < self.expected:
            reasons = "; ".join(f"{name}: {why}" for name, why in declined.items())
            raise RunError(
                f"{len(roster)} of {self.expected} sites take part ({reasons})",
                where=str(folder.path),
                hint="Start again when they are ready, or expect fewer sites.",
            )
        return roster

    def welcome(self, plan: Plan, folder: RunFolder, roster: Facts, round_: int) -> Facts:
        """Take in whoever came later and has agreed; ask those who are there and were not asked."""
        declined: dict[str, str] = {}
        joined = self._take_in(plan, self.late.take_answers(), declined)
        joined = {name: facts for name, facts in joined.items() if name not in roster}
        if joined:
            everybody = {**roster, **joined}
            unwilling = self._announce_shares(plan, folder, everybody, joined)
            declined |= unwilling
            joined = {name: facts for name, facts in joined.items() if name not in unwilling}
        self._record(folder, round_ - 1, joined, declined)
        everybody = {**roster, **joined}
        self.shares = compute_shares(weigh_sites(plan, everybody, list(everybody)))
        self.late.ask(
            [name for name in self._present() if name not in everybody],
            lambda name: next(reply for _, reply in self._greet(plan, folder, [name])),
        )
        return joined

    def _greet(
        self, plan: Plan, folder: RunFolder, names: Sequence[str]
    ) -> Iterator[tuple[str, OpenedMessage | MissingReply]]:
        """Put the terms before some sites; their answers."""
        body = {
            "terms": make_terms(plan.config),
            "versions": list_versions(plan.config.model.runtime),
            "signatures": self.signatures,
            "weights": plan.card.get("digest", ""),
            "patience": self.patience,
        }
        sender = MessageSender(self.link, self.run, MAX_HEADER_BYTES, folder)
        patience = self.patience + self.timeout
        return sender.ask("hello", names, lambda _: (body, {}), patience)

    def _take_in(
        self,
        plan: Plan,
        answers: Iterable[tuple[str, OpenedMessage | MissingReply]],
        declined: dict[str, str],
    ) -> Facts:
        """What those tell who take part; why the others do not goes into `declined`."""
        roster: Facts = {}
        for name, reply in answers:
            try:
                roster[name] = self._read_hello(reply, name, plan)
            except RunError as err:
                declined[name] = clean_text(err.what)
                if isinstance(reply, MissingReply) and not reply.said:
                    self.late.forget(name)  # it was away, and may be asked when it comes back
        return roster

    def _record(
        self, folder: RunFolder, after: int, joined: Iterable[str], declined: Mapping[str, str]
    ) -> None:
        """Write down who takes part from here on, and who does not and why."""
        log = RosterLog(folder.server / ROSTER_FILE)
        for name in joined:
            log.add(after, name, "joined")
            self.attendance.note_joined(name)
        for name, why in declined.items():
            folder.log(f"site {name} does not take part: {why}")
            log.add(after, name, "declined", why)
            self.attendance.note_declined(name, why)

    def _announce_shares(
        self, plan: Plan, folder: RunFolder, roster: Facts, sites: Iterable[str]
    ) -> dict[str, str]:
        """Tell some sites how much they count, before the first round they are in; who then does
        not take part, and why."""
        self.shares = compute_shares(weigh_sites(plan, roster, list(roster)))

        def make_content(site: str) -> Content:
            return self._describe_shares(site), {}

        sender = MessageSender(self.link, self.run, MAX_HEADER_BYTES, folder)
        unwilling = {}
        for name, reply in sender.ask("start", list(sites), make_content, self.timeout):
            if isinstance(reply, MissingReply) and reply.said:  # else it hears it with its turn
                unwilling[name] = clean_text(reply.reason)
        return unwilling

    def _describe_shares(self, site: str) -> dict[str, float]:
        """What a site is told of how much it counts."""
        share, largest = self.shares[site], max(self.shares.values())
        return {"sites": len(self.shares), "share": share, "largest": largest}

    def _read_hello(
        self, reply: OpenedMessage | MissingReply, name: str, plan: Plan
    ) -> dict[str, float]:
        """What a site tells of itself; whatever is wrong with it costs that site, nothing else."""
        if isinstance(reply, MissingReply):
            raise RunError(reply.reason)
        facts = _read_facts(reply.body.get("facts"), name)
        lacking = reply.body.get("lacks", [])
        if not isinstance(lacking, list) or not all(one in plan.classes for one in lacking):
            raise RunError(f"the classes it says it lacks are none of this run's ({lacking!r:.80})")
        self.lacking[name] = list(dict.fromkeys(lacking))
        return facts

    def _present(self) -> tuple[str, ...]:
        """The sites that are there and may take part; nothing is asked of the others."""
        return tuple(name for name in self.link.present() if name not in self.left_out)

    def _wait_for_sites(self) -> tuple[str, ...]:
        """The sites, once all that are expected are there."""
        deadline = time.monotonic() + self.patience
        while len(names := self._present()) < self.expected:
            self.attendance.look(names, self.expected)
            if time.monotonic() > deadline:
                raise RunError(
                    f"{self.expected} sites are expected and {len(names)} came "
                    f"({', '.join(names) or 'none'})",
                    hint="Start them with `vitrail flower site`, or give --sites a smaller number.",
                )
            time.sleep(_POLL_SECONDS)
        self.attendance.look(names, self.expected)
        return tuple(sorted(names))

    def counts(self) -> None:
        """How many images of each class a site has is the site's to know."""
        return None

    def digest(self) -> str:
        """The sites hold the data; each checks its own."""
        return "remote"

    def remarks(self) -> tuple[str, ...]:
        """Which sites are left out, and which classes which site lacks."""
        return (
            *(f"site {name} is left out (debias)" for name in sorted(self.left_out)),
            *(
                f"site {name} has no image of: {', '.join(classes)}"
                for name, classes in self.lacking.items()
                if classes
            ),
        )

    def held_out(self) -> tuple[Ints, Ints]:
        """The coordinator has no images."""
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing

    def pool(self, plan: Plan, network: Network, folder: RunFolder) -> Pool:
        """The sites themselves."""
        del network
        sender = MessageSender(self.link, self.run, compute_reply_limit(plan), folder)
        heads = HeadKeeper(folder, self.run, self.node_keys)
        return RemotePool(
            sender,
            self.timeout,
            is_audited(plan),
            len(plan.classes),
            self._describe_shares,
            heads,
            self.attendance,
            plan.config.model.runtime,
        )

    def send_farewell(self, folder: RunFolder) -> None:
        """Tell every site that the run is over, and what the others told for its audit. One that
        answered to the end and is away for a moment is waited for."""
        file = folder.server / AUDIT_TABLES_FILE
        tables = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        sender = MessageSender(self.link, self.run, MAX_HEADER_BYTES, folder)
        heads = HeadKeeper(folder, self.run, self.node_keys)
        closed = folder.server / CLOSED_FILE
        awaited = set(json.loads(closed.read_text(encoding="utf-8")) if closed.exists() else ())
        deadline = time.monotonic() + min(self.timeout, _PARTING_SECONDS)
        heard: set[str] = set()

        def make_content(site: str) -> Content:
            return {"tables": tables, **heads.make_content(site)}, {}

        asked = [site for site in self._present() if site in tables]
        if len(asked) > 1 and not all(HISTOGRAMS in tables[site] for site in asked):
            for site, reply in list(sender.ask("compare", asked, make_content, self.timeout)):
                told = reply.body.get(HISTOGRAMS) if isinstance(reply, OpenedMessage) else None
                if isinstance(told, dict):  # whether it fits is seen where it is read
                    tables[site] = {**tables[site], HISTOGRAMS: told}
            write_json(file, tables)
        while True:
            there = [name for name in self._present() if name not in heard]
            patience = max(1.0, deadline - time.monotonic())
            for site, reply in sender.ask("farewell", there, make_content, patience):
                if isinstance(reply, OpenedMessage) or reply.said:
                    heard.add(site)
            if awaited <= heard or time.monotonic() > deadline:
                break
            self.attendance.look(self._present())
            time.sleep(_POLL_SECONDS)
        closed.unlink(missing_ok=True)

    def prepare(
        self, plan: Plan, network: Network, pool: Pool, progress: Callable[[int, int], None]
    ) -> None:
        """Each site prepares itself; after a restart, wait until they have come back."""
        del plan, network, pool, progress
        self._wait_for_sites()


def compute_reply_limit(plan: Plan) -> int:
    """The most bytes that a site may send at once: what the run declares, and a header."""
    declared = max((stage.wire.bytes_up for stage in plan.stages), default=0)
    if any(stage.wire.up_kept for stage in plan.stages):
        declared += _KEPT
    return declared + MAX_HEADER_BYTES


def _check_suspected(plan: Plan, names: Sequence[str]) -> None:
    """Whoever `[debias]` names takes part or is left out."""
    for name in plan.config.debias.suspected:
        if name not in names and name not in plan.config.debias.left_out:
            raise ConfigError(
                f"there is no site {name!r}",
                where="debias.findings",
                hint=suggest_name(name, names),
            )


def _read_facts(raw: Any, site: str) -> dict[str, float]:
    """What a site tells of itself: numbers by name, with at least one training image."""
    if isinstance(raw, dict) and all(
        isinstance(name, str) and isinstance(value, int | float) and 0 <= value < 2**53
        for name, value in raw.items()
    ):
        facts = {name: float(value) for name, value in raw.items()}
        if facts.get("examples", 0.0) >= 1:
            return facts
    raise RunError(f"what site {site!r} tells of itself cannot be used ({raw!s:.80})")


def _read_step(message: OpenedMessage | MissingReply) -> StepAnswer | MissingReply:
    """What a site answers in a step of a secure sum."""
    if isinstance(message, MissingReply):
        return message
    try:
        return StepAnswer.read(message.body)
    except ValueError as err:
        return MissingReply(clean_text(f"its answer cannot be read ({err})", 500))


class RemotePool:
    """Turns played by the sites themselves; an `audit` is over so many `classes`. Each is told
    how much it counts."""

    def __init__(
        self,
        post: MessageSender,
        timeout: float,
        audit: bool,
        classes: int = 0,
        describe_shares: Callable[[str], dict[str, float]] | None = None,
        heads: HeadKeeper | None = None,
        attendance: Attendance | None = None,
        runtime: str = "torch",
    ) -> None:
        self.post, self.run = post, post.run
        self._runtime = runtime
        self._heads = heads
        self.attendance = attendance or Attendance()
        self.timeout = timeout
        self._audit = audit
        self._classes = classes
        self._told: dict[str, Any] = {}
        self._describe_shares = describe_shares or (lambda _: {})

    def turns(self, tasks: Sequence[Task], down: RoundMessage) -> Iterator[Reply | MissingReply]:
        """One message each way; the closing turn also brings what a site tells for audits."""
        closing = bool(tasks) and tasks[0].closing
        extra = {"audit": self._audit} if closing else {}
        assets = AssetStore(self.post.folder.server / "assets")
        by_site, versions = {task.site: task for task in tasks}, list_versions(self._runtime)
        heads = self._heads or HeadKeeper(self.post.folder, self.post.run)

        def make_content(site: str) -> Content:
            task = by_site[site]
            brought = pack_assets([assets.get(digest) for digest in task.lacks])
            body = {
                "task": task.header(),
                "digest": down.digest,
                "versions": versions,
                "shares": self._describe_shares(site),
                **extra,
                **heads.make_content(site),
            }
            return body, {**down.tensors, **brought}

        sites = [task.site for task in tasks]
        self.attendance.look(self.post.link.present())
        answered = []
        for site, reply in self.post.ask("turn", sites, make_content, self.timeout):
            letter = heads.receive(site, down.round, reply)
            if isinstance(letter, MissingReply):
                self.attendance.note_absent(by_site[site].round, site, letter.reason, closing)
            else:
                answered.append(site)
            if closing and isinstance(letter, OpenedMessage) and "told" in letter.body:
                self._take_audit_table(site, letter.body["told"])
            yield self._read_reply(letter)
        heads.sync()
        if closing:
            write_json(self.post.folder.server / CLOSED_FILE, answered)
        if self._told:
            write_json(self.post.folder.server / AUDIT_TABLES_FILE, self._told)

    def exchange(self, requests: Sequence[StepRequest]) -> Iterator[StepAnswer | MissingReply]:
        """A step of a secure sum: a small message each way, without a model."""
        by_site = {request.site: request for request in requests}

        def make_content(site: str) -> Content:
            return {"request": asdict(by_site[site])}, {}

        for _, reply in self.post.ask("step", list(by_site), make_content, self.timeout):
            yield _read_step(reply)

    def verify(self, site: str, statement: bytes, signature: str) -> bool:
        """By the public key of the site's node, read anew: keys change during a run."""
        keys = None if self._heads is None else self._heads.keys
        if keys is None:
            return True
        try:
            return is_signed_by_node(keys.public(site).read_bytes(), statement, signature)
        except FileNotFoundError:  # it is no longer accepted
            return False

    def _take_audit_table(self, site: str, entry: Any) -> None:
        """Take a site's table if it is one; a bad one costs that site's audit, nothing else.

        Whether its places are those of the model the sites see, who have their own beside it.
        """
        try:
            table = ClassSummary.from_json(entry[SUMMARY])
            if len(table.counts) != self._classes:
                raise ValueError(f"{len(table.counts)} classes, and there are {self._classes}")
            self._told[site] = {SUMMARY: table.to_json()}
        except (KeyError, TypeError, ValueError) as err:
            self.post.folder.log(clean_text(f"refused what {site} told for audits: {err}", 500))

    def _read_reply(self, message: OpenedMessage | MissingReply) -> Reply | MissingReply:
        if isinstance(message, MissingReply):
            return message
        try:
            return Reply.read(message.body, message.tensors)
        except (KeyError, TypeError, ValueError) as err:
            return MissingReply(clean_text(f"its reply cannot be read ({err})", 500))

    def logits(self, values: Tensor, rows: Rows) -> Tensor:
        """The coordinator has no images to look at."""
        del values, rows
        raise RunError(_NO_IMAGES)

    def prefix(self, chunks: Sequence[Rows], view: str) -> Iterator[Tensor]:
        """Each site computes its own features."""
        del chunks, view
        raise RunError(_NO_IMAGES)

    def train_alone(self, sites: Sequence[str]) -> Iterator[str]:
        """Done in the closing turn."""
        yield from sites

    def use_features(self, path: Path) -> None:
        """Each site has its own."""
        del path
        raise RunError(_NO_IMAGES)

    def close(self) -> None:
        """The sites go on by themselves."""
