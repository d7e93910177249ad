"""The members of a run at the other end of a link."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.audit.audit_run import SEPARABILITY_FILE
from vitrail.audit.detection.separability import Separability
from vitrail.engine.members import Facts, Ints
from vitrail.engine.plan import Plan
from vitrail.engine.storage.asset_store import AssetStore
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.tasks import MissingReply, Reply, RoundMessage, Task
from vitrail.engine.workers.pool import Pool
from vitrail.errors import ConfigError, RunError, VitrailError, suggest_name
from vitrail.files import load_or_create_secret, write_json
from vitrail.flower.coordinator.reply_order import put_in_order
from vitrail.flower.envelope import (
    MAX_HEADER_BYTES,
    OpenedMessage,
    compute_message_id,
    seal,
    unseal,
)
from vitrail.flower.link import Link
from vitrail.flower.plain_text import clean_text
from vitrail.flower.run_terms import is_audited, make_terms
from vitrail.local.inputs import Rows
from vitrail.models.network import Network
from vitrail.release.asset import pack_assets
from vitrail.rng import Key
from vitrail.secure_aggregation.cohort import PublicKey

_POLL_SECONDS = 1.0
_KEPT = 2**30  # what images may add to a reply; the guard counts them afterwards
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
    announced: dict[str, PublicKey] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    size: int = 0

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
        terms = make_terms(plan.config)
        body = {"terms": terms, "weights": plan.card.get("digest", ""), "patience": self.patience}
        names = self._wait_for_sites()
        _check_suspected(plan, names)
        sender = MessageSender(self.link, self.run, MAX_HEADER_BYTES, folder)
        roster: Facts = {}
        declined: dict[str, str] = {}
        patience = self.patience + self.timeout
        for name, reply in sender.ask("hello", names, lambda _: (body, {}), patience):
            try:
                roster[name] = self._read_hello(reply, name, plan)
            except RunError as err:
                declined[name] = clean_text(err.what)
                folder.log(f"site {name} does not take part: {declined[name]}")
        if len(roster) < self.expected:
            reasons = "; ".join(f"{name}: {why}" for name, why in declined.items())
            raise RunError(
                f"{len(roster)} of {self.expected} sites take part ({reasons})",
                where=str(folder.path),
                hint="Start again when they are ready, or expect fewer sites.",
            )
        return roster

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
        if plan.secure:
            self.announced[name] = _read_key(reply.body.get("key"), name)
        self.lacking[name] = list(dict.fromkeys(lacking))
        return facts

    def keys(self, plan: Plan) -> dict[str, PublicKey]:
        """What the sites announced when they enrolled."""
        del plan
        return self.announced

    def _present(self) -> tuple[str, ...]:
        """The sites that are there and may take part; nothing is asked of the others."""
        return tuple(name for name in self.link.present() if name not in self.left_out)

    def _wait_for_sites(self) -> tuple[str, ...]:
        """The sites, once all that are expected are there."""
        deadline = time.monotonic() + self.patience
        while len(names := self._present()) < self.expected:
            if time.monotonic() > deadline:
                raise RunError(
                    f"{self.expected} sites are expected and {len(names)} came "
                    f"({', '.join(names) or 'none'})",
                    hint="Start them with `vitrail flower site`, or give --sites a smaller number.",
                )
            time.sleep(_POLL_SECONDS)
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
        declared = max((stage.wire.bytes_up for stage in plan.stages), default=0)
        if any(stage.wire.up_kept for stage in plan.stages):
            declared += _KEPT
        sender = MessageSender(self.link, self.run, declared + MAX_HEADER_BYTES, folder)
        return RemotePool(sender, self.timeout, is_audited(plan), len(plan.classes))

    def send_farewell(self, folder: RunFolder) -> None:
        """Tell every site that the run is over, and what the others told for its audit."""
        file = folder.server / SEPARABILITY_FILE
        tables = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        sender = MessageSender(self.link, self.run, MAX_HEADER_BYTES, folder)
        there = self._present()
        for _ in sender.ask("farewell", there, lambda _: ({"tables": tables}, {}), self.timeout):
            pass

    def prepare(
        self, plan: Plan, network: Network, pool: Pool, progress: Callable[[int, int], None]
    ) -> None:
        """Each site prepares itself; after a restart, wait until they have come back."""
        del plan, network, pool, progress
        self._wait_for_sites()


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


def _read_key(raw: Any, site: str) -> PublicKey:
    """The key that a site adds up with first."""
    try:
        key = PublicKey.read(raw)
        if key.epoch:
            raise ValueError("it is not a first one")
        return key
    except (TypeError, ValueError) as err:
        raise RunError(f"site {site!r} announced no key for secure sums ({err})") from err


Content = tuple[dict[str, Any], dict[str, Tensor]]
MakeContent = Callable[[str], Content]


@dataclass(frozen=True)
class MessageSender:
    """Sends messages of one run and lets only the replies through that answer them."""

    link: Link
    run: str
    limit: int
    folder: RunFolder

    def ask(
        self, kind: str, sites: Sequence[str], make_content: MakeContent, patience: float
    ) -> Iterator[tuple[str, OpenedMessage | MissingReply]]:
        """One message of a kind to each site, sealed when it is sent; replies opened and checked,
        in the order of `sites`."""
        sent: dict[str, str] = {}

        def make_message(site: str) -> bytes:
            body, tensors = make_content(site)
            raw = seal(kind, self.run, site, body, tensors)
            sent[site] = compute_message_id(raw)
            return raw

        answers = self.link.ask(sites, make_message, patience)
        for site, raw in put_in_order(answers, sites, self.folder.server):
            yield site, self._check_reply(kind, site, sent.get(site, ""), raw)

    def _check_reply(
        self, kind: str, site: str, sent: str, raw: bytes | MissingReply
    ) -> OpenedMessage | MissingReply:
        if isinstance(raw, MissingReply):
            return raw
        try:
            reply = unseal(raw, self.limit)
        except VitrailError as err:
            return self._log_refusal(site, str(err))
        if (reply.run, reply.site, reply.answers) != (self.run, site, sent):
            return self._log_refusal(
                site, f"it answers another message (of {reply.site!r}, run {reply.run!r})"
            )
        if reply.kind == "error":
            said = clean_text(str(reply.body.get("sentence", "nothing")), 500)
            return MissingReply(f"it says: {said}")
        if reply.kind != kind:
            return self._log_refusal(site, f"it is a {reply.kind!r:.40}, not a {kind!r}")
        return reply

    def _log_refusal(self, site: str, reason: str) -> MissingReply:
        self.folder.log(f"refused a message of {site}: {clean_text(reason)}")
        return MissingReply(f"its message was refused: {reason}")


class RemotePool:
    """Turns played by the sites themselves; an `audit` is over so many `classes`."""

    def __init__(self, post: MessageSender, timeout: float, audit: bool, classes: int = 0) -> None:
        self.post = post
        self.timeout = timeout
        self._audit = audit
        self._classes = classes
        self._told: dict[str, Any] = {}

    def turns(self, tasks: Sequence[Task], down: RoundMessage) -> Iterator[Reply | MissingReply]:
        """One message each way; the closing turn also brings what a site tells for audits."""
        closing = bool(tasks) and tasks[0].closing
        extra = {"audit": self._audit} if closing else {}
        assets = AssetStore(self.post.folder.server / "assets")
        by_site = {task.site: task for task in tasks}

        def make_content(site: str) -> Content:
            task = by_site[site]
            brought = pack_assets([assets.get(digest) for digest in task.lacks])
            body = {"task": task.header(), "digest": down.digest, **extra}
            return body, {**down.tensors, **brought}

        sites = [task.site for task in tasks]
        for site, letter in self.post.ask("turn", sites, make_content, self.timeout):
            if closing and isinstance(letter, OpenedMessage) and "told" in letter.body:
                self._take_audit_table(site, letter.body["told"])
            yield self._read_reply(letter)
        if self._told:
            write_json(self.post.folder.server / SEPARABILITY_FILE, self._told)

    def _take_audit_table(self, site: str, entry: Any) -> None:
        """Take a site's table if it is one; a bad one costs that site's audit, nothing else.

        Whether its places are those of the model the sites see, who have their own beside it.
        """
        try:
            table = Separability.from_json(entry)
            if len(table.counts) != self._classes:
                raise ValueError(f"{len(table.counts)} classes, and there are {self._classes}")
            self._told[site] = table.to_json()
        except (KeyError, TypeError, ValueError) as err:
            self.post.folder.log(f"refused what {site} told for audits: {err}")

    def _read_reply(self, message: OpenedMessage | MissingReply) -> Reply | MissingReply:
        if isinstance(message, MissingReply):
            return message
        try:
            return Reply.read(message.body, message.tensors)
        except (KeyError, TypeError, ValueError) as err:
            return MissingReply(f"its reply cannot be read ({err})")

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
