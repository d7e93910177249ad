"""The coordinator's port: Flower's Fleet interface for registered nodes, and nothing else.

Flower's SuperLink serves three interfaces on one port: Fleet for nodes, Control (start runs,
register nodes, read logs) and Runtime (what apps use). Only the first knows node keys. Here
Flower's state lives in the coordinator's own process, which reads and writes it directly; the
network sees the routes of `ROUTES` and no others: nothing to start a run with, no app to ship.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.main import create_app

from vitrail.errors import ConfigError, RunError
from vitrail.flower.carrier import NOT_LET_IN
from vitrail.flower.coordinator.disk_store import DiskObjectStore
from vitrail.flower.coordinator.quiet_teller import QuietTeller
from vitrail.flower.coordinator.tls_watch import watch_handshakes
from vitrail.flower.keys import Keys
from vitrail.flower.node_key import read_public

_FLEET = "/v1/fleet/"
ROUTES = frozenset(
    _FLEET + name
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "pull-object",
        "push-object",
        "confirm-message-received",
    )
)
"""What a registered node needs, and all that the network can reach."""
OPEN_ROUTES = frozenset(_FLEET + name for name in ("register-node", "unregister-node"))
"""What nodes without keys need beside that; only where everybody is on one machine."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_START_SECONDS, _BEAT_SECONDS = 30.0, 5.0
_MOST_CONNECTIONS = 1024

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class AllowedRoutes:
    """An ASGI application that hands on requests for some paths; others do not exist here."""

    def __init__(
        self, app: Application, paths: frozenset[str], tell: Callable[[str], None] | None = None
    ) -> None:
        self.app = app
        self.paths = paths
        self.quiet = None if tell is None else QuietTeller(tell)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only plain requests to allowed paths get through, and nothing that upgrades them."""
        if scope["type"] != "http":
            return
        if scope["path"] in self.paths and scope["method"] == "POST":
            await self.app(scope, receive, self._watch(scope, send))
            return
        start = {"type": "http.response.start", "status": 404, "headers": []}
        await send(start)
        await send({"type": "http.response.body", "body": b""})

    def _watch(self, scope: Scope, send: Send) -> Send:
        """Hand a response on; that a key was not let in is told, once a minute and address."""

        async def hand_on(event: MutableMapping[str, Any]) -> None:
            refused = event["type"] == "http.response.start" and event["status"] in NOT_LET_IN
            if refused and self.quiet is not None:
                host = str((scope.get("client") or ("somewhere",))[0])
                self.quiet.tell_of(
                    host,
                    f"a site at {host} was not let in: its key is not registered here, or is "
                    "connected already",
                )
            await send(event)

        return hand_on


class FleetServer:
    """Flower's state and its Fleet interface, as long as the block lasts.

    `keys` None is insecure: nodes register themselves, so it listens on this machine alone.
    Contents of messages wait as files in `folder`, not in memory.
    """

    def __init__(
        self,
        host: str,
        port: int,
        keys: Keys | None,
        folder: Path,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if keys is None and host not in LOOPBACK:
            raise ConfigError(
                f"without keys anybody who reaches {host} could take part",
                where="--insecure",
                hint="Listen on 127.0.0.1, or make keys with `vitrail flower keys init`.",
            )
        self.keys = keys
        self._tell = tell
        self.names: dict[int, str] = {}
        self._publics: dict[int, bytes] = {}
        self._roll_stamp: tuple[int, ...] = ()
        self._roll_lock = threading.Lock()
        self._host, self._port = host, port
        self._app = _make_app(folder / "messages", authenticated=keys is not None)
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.run_id = 0
        self._task_id = 0

    @property
    def state(self) -> LinkState:
        """Flower's state: nodes, messages and their contents."""
        state: LinkState = self._app.state.linkstate_factory.state()
        return state

    def __enter__(self) -> FleetServer:
        self.refresh_names()
        self._start_run()
        config = uvicorn.Config(
            AllowedRoutes(self._app, ROUTES if self.keys else ROUTES | OPEN_ROUTES, self._tell),
            host=self._host,
            port=self._port,
            lifespan="off",
            ws="none",
            log_level="critical",
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            **_make_tls_options(self.keys),
        )
        config.load()
        if config.ssl is not None and self._tell is not None:
            watch_handshakes(config.ssl, self._tell)
        self._uvicorn = uvicorn.Server(config)
        self._start_thread(self._listen)
        self._start_thread(self._beat)
        self._wait_until_listening()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        self._ended.set()
        self._uvicorn.should_exit = True
        for thread in self._threads:
            thread.join(timeout=10.0)

    def refresh_names(self) -> None:
        """Read the roll again if it changed: new keys are let in, revoked ones no more."""
        if self.keys is None:
            return
        with self._roll_lock:  # sites are asked from more than one thread
            if (stamp := self._read_roll_stamp()) != self._roll_stamp:
                self._apply_roll(self.keys)
                self._roll_stamp = stamp

    def _apply_roll(self, keys: Keys) -> None:
        known = {name: self._load_public(name) for name in keys.list_sites()}
        for node, public in list(self._publics.items()):
            if known.get(self.names[node]) != public:
                self.state.delete_node(NOOP_FLWR_AID, node)
                del self.names[node], self._publics[node]
        for name, public in known.items():
            if name not in self.names.values():
                self._register_node(name, public)

    def _read_roll_stamp(self) -> tuple[int, ...]:
        """What changes whenever the roll is replaced."""
        assert self.keys is not None
        try:
            stat = self.keys.roll.stat()
        except OSError as err:
            where = str(self.keys.roll)
            raise RunError(f"the roll of sites is gone ({err.strerror})", where=where) from err
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _load_public(self, site: str) -> bytes:
        assert self.keys is not None
        public = serialization.load_ssh_public_key(read_public(self.keys.public(site)))
        assert isinstance(public, ec.EllipticCurvePublicKey)
        return public_key_to_bytes(public)

    def _register_node(self, name: str, public: bytes) -> None:
        """A site's public key under its name; a key that two have is refused."""
        assert self.keys is not None
        try:
            node = self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public, 0, name=name)
        except ValueError as err:
            raise ConfigError(
                f"the public key of site {name!r} is another site's too",
                where=str(self.keys.public(name)),
            ) from err
        self.names[node], self._publics[node] = name, public

    def _start_run(self) -> None:
        """The one run that messages belong to. Flower has no app for it; none can be asked for."""
        state = self.state
        self.run_id = state.create_run(
            None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        task = state.get_tasks(run_ids=[self.run_id])[0]
        self._task_id = task.task_id
        if state.claim_task(task.task_id) is None or not state.activate_task(task.task_id):
            raise RunError("Flower's own state refused to start a run")
        TaskIdentity.run_id, TaskIdentity.node_id = self.run_id, SUPERLINK_NODE_ID
        TaskIdentity.task_id = task.task_id

    def _start_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _listen(self) -> None:
        try:
            self._uvicorn.run()
        except SystemExit:  # a port in use; said by whoever waits for it
            self._ended.set()

    def _beat(self) -> None:
        """Flower ends a run of which it hears nothing."""
        while not self._ended.wait(_BEAT_SECONDS):
            self.state.acknowledge_task_heartbeat(self._task_id)

    def _wait_until_listening(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._uvicorn.started:
            if self._ended.is_set() or time.monotonic() > deadline:
                raise RunError(
                    f"cannot listen on {self._host}:{self._port}",
                    hint="Another program may use this port: choose another one with --port.",
                )
            time.sleep(0.05)


def _make_app(folder: Path, authenticated: bool) -> FastAPI:
    """Flower's whole application, of which `AllowedRoutes` shows a part; contents wait on disk."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    app = create_app()
    app.state.enable_supernode_auth = authenticated
    app.state.linkstate_factory.state()._object_store = DiskObjectStore(folder)
    return app


def _make_tls_options(keys: Keys | None) -> dict[str, Any]:
    if keys is None:
        return {}
    return {"ssl_certfile": str(keys.certificate), "ssl_keyfile": str(keys.private)}
