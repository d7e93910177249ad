"""The coordinator's port: Flower's Fleet interface for registered nodes, and nothing else.

Flower's SuperLink serves three interfaces on one port: Fleet for nodes, Control (start runs,
register nodes, read logs) and Runtime (what apps use). Only the first knows node keys. Here
Flower's state lives in the coordinator's own process, which reads and writes it directly; the
network sees `allowed_routes.ROUTES` and no others: nothing to start a run with, no app to ship.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

import uvicorn
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.main import create_app

from vitrail.errors import ConfigError, RunError
from vitrail.flower.coordinator.accept_connections import AcceptedConnection
from vitrail.flower.coordinator.allowed_routes import OPEN_ROUTES, ROUTES, AllowedRoutes
from vitrail.flower.coordinator.connections import allow_handles
from vitrail.flower.coordinator.disk_store import DiskObjectStore
from vitrail.flower.coordinator.guarded_state import GuardedLinkState
from vitrail.flower.coordinator.memory_arenas import limit_arenas
from vitrail.flower.coordinator.tls_watch import watch_handshakes
from vitrail.flower.keys import Keys
from vitrail.flower.node_key import read_public

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_START_SECONDS, _BEAT_SECONDS, _SHUTDOWN_SECONDS = 30.0, 5.0, 5


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
        self._known: frozenset[bytes] = frozenset()
        self._routes = AllowedRoutes(
            self._app,
            ROUTES if keys else ROUTES | OPEN_ROUTES,
            tell if keys else None,  # without keys nobody is refused for one
            None if keys is None else lambda key: key in self._known,
            folder,
        )
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.run_id = 0
        self._task_id = 0

    @property
    def state(self) -> GuardedLinkState:
        """Flower's state: nodes, messages and their contents."""
        state = self._app.state.linkstate_factory.state()
        assert isinstance(state, GuardedLinkState)
        return state

    def limit_replies(self, size: int) -> None:
        """Take no reply from the network that is larger than this."""
        self._routes.largest_reply = size

    def note_message(self, size: int) -> None:
        """A message of this size waits for its site to fetch it."""
        self._routes.largest_message = max(self._routes.largest_message, size)

    def __enter__(self) -> FleetServer:
        limit_arenas()
        self.refresh_names()
        self._start_run()
        connections = self._routes.connections
        connections.most_strangers = allow_handles(len(self.names))
        context = _make_tls_context(self.keys, self._tell)
        accept = partial(AcceptedConnection, connections, context)
        config = uvicorn.Config(
            self._routes,
            host=self._host,
            port=self._port,
            lifespan="off",
            ws="none",
            log_level="critical",
            server_header=False,
            loop="asyncio",
            http=accept,  # type: ignore[arg-type]  # it is called, as a class would be
            callback_notify=self._sweep,
            timeout_notify=1,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
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
        self._known = frozenset(self._publics.values())

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

    async def _sweep(self) -> None:
        self._routes.connections.sweep()

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
    factory = app.state.linkstate_factory
    factory.state_instance = GuardedLinkState(factory.federation_manager, DiskObjectStore(folder))
    return app


def _make_tls_context(
    keys: Keys | None, tell: Callable[[str], None] | None
) -> ssl.SSLContext | None:
    """How connections are made secure; handshakes that fail are told."""
    if keys is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys.certificate, keys.private)
    if tell is not None:
        watch_handshakes(context, tell)
    return context
