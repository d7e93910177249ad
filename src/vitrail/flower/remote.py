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

from vitrail.audit.gather import TABLES
from vitrail.audit.separability import Separability
from vitrail.engine.folder import RunFolder
from vitrail.engine.members import Facts, Ints
from vitrail.engine.plan import Plan
from vitrail.engine.pool import Pool
from vitrail.engine.shelf import Shelf
from vitrail.engine.tasks import Down, Missing, Reply, Task
from vitrail.errors import ConfigError, RunError, VitrailError, nearest
from vitrail.files import kept_secret, write_json
from vitrail.flower.agreement import audited, terms_of
from vitrail.flower.envelope import ROOM, Letter, mark, seal, unseal
from vitrail.flower.link import Link
from vitrail.local.inputs import Rows
from vitrail.models.network import Network
from vitrail.release.asset import packed
from vitrail.release.pact import PublicKey
from vitrail.rng import Key

_POLL_SECONDS = 1.0
_KEPT = 2**30  # what images may add to a reply; the guard counts them afterwards
_NO_IMAGES = "the coordinator of a federation has no images"


@dataclass
class Remote:
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

    def secret(self, plan: Plan, folder: RunFolder) -> Key:
        """Made here once, kept in the server's folder, never sent."""
        del plan
        return Key(kept_secret(folder.server / "secret", "the server's secret"))

    def enroll(self, plan: Plan, folder: RunFolder) -> Facts:
        """Wait for the sites, put the terms before each, and hear what it tells."""
        self.size = int(plan.config.data.image_size or 0)
        terms = terms_of(plan.config)
        body = {"terms": terms, "weights": plan.card.get("digest", ""), "patience": self.patience}
        names = self._gathered()
        _check_suspected(plan, names)
        post = Post(self.link, self.run, ROOM, folder)
        replies = post.ask("hello", dict.fromkeys(names, (body, {})), self.patience + self.timeout)
        roster: Facts = {}
        for name in names:
            reply = replies[name]
            if isinstance(reply, Missing):
                raise RunError(
                    f"site {name!r} does not take part: {reply.reason}",
                    where=str(folder.path),
                    hint="Start again when it is ready, or expect fewer sites.",
                )
            roster[name] = _facts(reply.body.get("facts"), name)
            self.lacking[name] = [str(c) for c in reply.body.get("lacks", [])]
            if plan.secure:
                self.announced[name] = _key(reply.body.get("key"), name)
        return roster

    def keys(self, plan: Plan) -> dict[str, PublicKey]:
        """What the sites announced when they enrolled."""
        del plan
        return self.announced

    def _present(self) -> tuple[str, ...]:
        """The sites that are there and may take part; nothing is asked of the others."""
        return tuple(name for name in self.link.present() if name not in self.left_out)

    def _gathered(self) -> tuple[str, ...]:
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
        post = Post(self.link, self.run, declared + ROOM, folder)
        return RemotePool(post, self.timeout, audited(plan), len(plan.classes))

    def part(self, folder: RunFolder) -> None:
        """Tell every site that the run is over, and what the others told for its audit."""
        file = folder.server / TABLES
        told = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        post = Post(self.link, self.run, ROOM, folder)
        there = self._present()
        post.ask("farewell", {site: ({"tables": told}, {}) for site in there}, self.timeout)

    def prepare(
        self, plan: Plan, network: Network, pool: Pool, progress: Callable[[int, int], None]
    ) -> None:
        """Each site prepares itself; after a restart, wait until they have come back."""
        del plan, network, pool, progress
        self._gathered()


def _check_suspected(plan: Plan, names: Sequence[str]) -> None:
    """Whoever `[debias]` names takes part or is left out."""
    for name in plan.config.debias.suspected:
        if name not in names and name not in plan.config.debias.left_out:
            raise ConfigError(
                f"there is no site {name!r}", where="debias.findings", hint=nearest(name, names)
            )


def _facts(raw: Any, site: str) -> dict[str, float]:
    """What a site tells of itself: numbers by name, with at least one training image."""
    if isinstance(raw, dict) and all(
        isinstance(name, str) and isinstance(value, int | float) and 0 <= value < 2**53
        for name, value in raw.items()
    ):
        facts = {name: float(value) for name, value in raw.items()}
        if facts.get("examples", 0.0) >= 1:
            return facts
    raise RunError(f"what site {site!r} tells of itself cannot be used ({raw!s:.80})")


def _key(raw: Any, site: str) -> PublicKey:
    """The key that a site adds up with first."""
    try:
        key = PublicKey.read(raw)
        if key.epoch:
            raise ValueError("it is not a first one")
        return key
    except (TypeError, ValueError) as err:
        raise RunError(f"site {site!r} announced no key for secure sums ({err})") from err


@dataclass(frozen=True)
class Post:
    """Sends messages of one run and lets only the replies through that answer them."""

    link: Link
    run: str
    limit: int
    folder: RunFolder

    def ask(
        self,
        kind: str,
        bodies: dict[str, tuple[dict[str, Any], dict[str, Tensor]]],
        patience: float,
    ) -> dict[str, Letter | Missing]:
        """One message of a kind to each site named; its reply opened and checked."""
        sealed = {
            site: seal(kind, self.run, site, body, tensors)
            for site, (body, tensors) in bodies.items()
        }
        answers = self.link.ask(sealed, patience)
        return {site: self._checked(kind, site, raw, answers[site]) for site, raw in sealed.items()}

    def _checked(self, kind: str, site: str, sent: bytes, raw: bytes | Missing) -> Letter | Missing:
        if isinstance(raw, Missing):
            return raw
        try:
            letter = unseal(raw, self.limit)
        except VitrailError as err:
            return self._refused(site, str(err))
        if (letter.run, letter.site, letter.answers) != (self.run, site, mark(sent)):
            return self._refused(
                site, f"it answers another message (of {letter.site!r}, run {letter.run!r})"
            )
        if letter.kind == "error":
            return Missing(f"it says: {str(letter.body.get('sentence', 'nothing'))[:500]}")
        if letter.kind != kind:
            return self._refused(site, f"it is a {letter.kind!r:.40}, not a {kind!r}")
        return letter

    def _refused(self, site: str, reason: str) -> Missing:
        self.folder.log(f"refused a message of {site}: {reason}")
        return Missing(f"its message was refused: {reason}")


class RemotePool:
    """Turns played by the sites themselves; an `audit` is over so many `classes`."""

    def __init__(self, post: Post, timeout: float, audit: bool, classes: int = 0) -> None:
        self.post = post
        self.timeout = timeout
        self._audit = audit
        self._classes = classes
        self._told: dict[str, Any] = {}

    def turns(self, tasks: Sequence[Task], down: Down) -> Iterator[Reply | Missing]:
        """One message each way; the closing turn also brings what a site tells for audits."""
        closing = bool(tasks) and tasks[0].closing
        extra = {"audit": self._audit} if closing else {}
        shelf = Shelf(self.post.folder.server / "assets")
        brought = {digest: shelf.get(digest) for task in tasks for digest in task.lacks}
        bodies = {
            task.site: (
                {"task": task.header(), "digest": down.digest, **extra},
                {**down.tensors, **packed([brought[digest] for digest in task.lacks])},
            )
            for task in tasks
        }
        replies = self.post.ask("turn", bodies, self.timeout)
        for task in tasks:
            letter = replies[task.site]
            if closing and isinstance(letter, Letter) and "told" in letter.body:
                self._hear(task.site, letter.body["told"])
            yield self._reply(letter)
        if self._told:
            write_json(self.post.folder.server / TABLES, self._told)

    def _hear(self, site: str, told: Any) -> None:
        """Take a site's table if it is one; a bad one costs that site's audit, nothing else.

        Whether its places are those of the model the sites see, who have their own beside it.
        """
        try:
            table = Separability.from_json(told)
            if len(table.counts) != self._classes:
                raise ValueError(f"{len(table.counts)} classes, and there are {self._classes}")
            self._told[site] = table.to_json()
        except (KeyError, TypeError, ValueError) as err:
            self.post.folder.log(f"refused what {site} told for audits: {err}")

    def _reply(self, letter: Letter | Missing) -> Reply | Missing:
        if isinstance(letter, Missing):
            return letter
        try:
            return Reply.read(letter.body, letter.tensors)
        except (KeyError, TypeError, ValueError) as err:
            return Missing(f"its reply cannot be read ({err})")

    def logits(self, values: Tensor, rows: Rows) -> Tensor:
        """The coordinator has no images to look at."""
        del values, rows
        raise RunError(_NO_IMAGES)

    def prefix(self, chunks: Sequence[Rows], view: str) -> Iterator[Tensor]:
        """Each site computes its own features."""
        del chunks, view
        raise RunError(_NO_IMAGES)

    def alone(self, sites: Sequence[str]) -> Iterator[str]:
        """Done in the closing turn."""
        yield from sites

    def use_features(self, path: Path) -> None:
        """Each site has its own."""
        del path
        raise RunError(_NO_IMAGES)

    def close(self) -> None:
        """The sites go on by themselves."""
