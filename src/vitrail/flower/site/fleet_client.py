"""A site's connection to its coordinator, over Flower's Fleet interface; imports no torch.

It asks for messages, hands each to whoever answers at this site, and sends the answer back. It
never asks for an app: what answers is the installed package.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_MIN_INTERVAL
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from vitrail.errors import RunError
from vitrail.files import create, write_json
from vitrail.flower.carrier import (
    NOT_LET_IN,
    fetch_objects,
    pack_message,
    unpack_message,
    unwrap_bytes,
    wrap_bytes,
)
from vitrail.flower.node_key import NODE_KEY, make_pair
from vitrail.flower.pauses import choose_pause

Answer = Callable[[bytes], bytes | None]
"""Answers a message; None says that nobody here could, so that the coordinator asks again."""
Tell = Callable[[str], None]
_BEAT_SECONDS = HEARTBEAT_MIN_INTERVAL / 2
LARGEST_RESPONSE = 2**31
"""Bytes of a response; more than this no message of Flower holds."""
_INSECURE_KEY = "insecure-node.key"
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
_CONNECT_SECONDS = 30.0
_TURN_SECONDS = 120.0  # for a busy coordinator to come to this site's content
_MOST_MISSED_BEATS = 3


class DisconnectedError(RunError):
    """The coordinator cannot be reached, or does not let this site in. `lasted` says that the
    connection had done some good before it was lost, `refused` that somebody answered no."""

    lasted = False
    refused = False


@dataclass(frozen=True)
class FleetClient:
    """How a site reaches its coordinator. `keys` is its folder of keys, None is insecure; `folder`
    keeps what Flower calls this node, so that a new start can take the place of the old one. No
    response is read that is `largest` or larger."""

    address: str
    keys: Path | None
    folder: Path
    largest: int = LARGEST_RESPONSE

    def serve(self, answer: Answer, leaving: threading.Event, tell: Tell) -> None:
        """Stay connected and answer messages until `leaving`; a lost connection is tried again,
        and a message that could not be answered is asked for again by connecting anew."""
        pause = _SHORTEST_PAUSE
        while not leaving.is_set():
            try:
                with self._connect() as connection:
                    tell(f"connected to {self.address}")
                    connection.answer_messages(answer, leaving)
            except DisconnectedError as err:
                if leaving.is_set():
                    return
                if err.lasted:
                    pause = _SHORTEST_PAUSE
                tell(f"{err}; trying again in {pause:.0f} s")
                leaving.wait(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)

    @contextmanager
    def _connect(self) -> Iterator[_Connection]:
        private, public = self._load_keys()
        interceptors: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, public),
        ]
        root = None if self.keys is None else (self.keys / "ca.pem").read_bytes()
        with FleetHttpClient.from_server_address(
            self.address, self.keys is None, root, interceptors
        ) as client:
            distrust_responses(client._client, self.largest)
            client._client.timeout = httpx.Timeout(_CONNECT_SECONDS, read=_TURN_SECONDS)
            connection = _Connection(client, self.address, public_key_to_bytes(public))
            connection.activate(self.keys is None, self.folder / "node.json")
            try:
                yield connection
            finally:
                connection.close()

    def _load_keys(self) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
        """The site's key. Without keys it proves nothing, and yet it is kept: a site that is
        started anew is then known as the node it was."""
        path = self.folder / _INSECURE_KEY if self.keys is None else self.keys / NODE_KEY
        if self.keys is None and not path.exists():
            create(path, make_pair()[0], 0o600)
        raw = path.read_bytes()
        key = serialization.load_ssh_private_key(raw, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key, key.public_key()


class _Connection:
    """One activation of this site's node."""

    def __init__(self, client: FleetHttpClient, address: str, public: bytes) -> None:
        self.client = client
        self.address = address
        self.public = public
        self.node = Node()
        self._closing = threading.Event()
        self._lost: list[str] = []

    def activate(self, register: bool, file: Path) -> None:
        """Tell the coordinator that this site is there. A node that was killed still counts as
        being there for a while, so it is taken away first."""
        with self._translate_errors():
            if register:
                with suppress(httpx.HTTPStatusError):  # it was registered before
                    self.client.RegisterNode(RegisterNodeFleetRequest(public_key=self.public))
            if file.exists():
                before = int(json.loads(file.read_text(encoding="utf-8"))["node"])
                with suppress(httpx.HTTPStatusError):  # a new coordinator knows it no longer
                    self.client.DeactivateNode(DeactivateNodeRequest(node_id=before))
            asked = ActivateNodeRequest(
                public_key=self.public, heartbeat_interval=HEARTBEAT_MIN_INTERVAL
            )
            self.node = Node(node_id=self.client.ActivateNode(asked).node_id)
        write_json(file, {"node": str(self.node.node_id)})
        threading.Thread(target=self._beat, daemon=True).start()

    def answer_messages(self, answer: Answer, leaving: threading.Event) -> None:
        """Answer one message after the other. The longer none comes, the longer the pauses."""
        quiet_since = began = time.monotonic()
        try:
            while not leaving.is_set():
                if self._lost:
                    raise DisconnectedError(self._lost[0])
                with self._translate_errors():
                    received = self._receive()
                if received is None:
                    leaving.wait(choose_pause(time.monotonic() - quiet_since))
                    continue
                self._answer_message(received, answer)
                quiet_since = time.monotonic()
        except DisconnectedError as err:
            err.lasted = quiet_since > began or time.monotonic() - began > _LONGEST_PAUSE
            raise

    def _answer_message(self, received: Message, answer: Answer) -> None:
        answered = answer(unwrap_bytes(received) or b"")
        if answered is None:  # a new connection makes the coordinator ask again
            raise DisconnectedError("a message could not be answered here")
        with self._translate_errors():
            self._send(Message(wrap_bytes(answered), reply_to=received))

    def close(self) -> None:
        """Say that this site leaves, if somebody hears it."""
        self._closing.set()
        with suppress(httpx.HTTPError, RuntimeError, ssl.SSLError):
            self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))

    def _receive(self) -> Message | None:
        response = self.client.PullMessages(PullMessagesRequest(node=self.node))
        if not response.messages_list:
            return None
        bare = message_from_proto(response.messages_list[0])
        run, message_id = bare.metadata.run_id, bare.metadata.message_id
        deadline = time.monotonic() + _LONGEST_PAUSE
        objects = None
        while objects is None:
            objects = fetch_objects(
                response.message_object_trees[0], lambda name: self._pull_object(run, name)
            )
            if objects is None and time.monotonic() > deadline:
                return None
        message = unpack_message(message_id, objects)
        self.client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=message_id)
        )
        return message

    def _pull_object(self, run: int, object_id: str) -> bytes:
        asked = PullObjectRequest(node=self.node, run_id=run, object_id=object_id)
        return self.client.PullObject(asked).object_content

    def _send(self, reply: Message) -> None:
        tree, objects = pack_message(reply)
        run = reply.metadata.run_id
        pushed = self.client.PushMessages(
            PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[tree],
                clientapp_runtime_list=[0.0],
            )
        )
        for object_id in pushed.objects_to_push:
            self.client.PushObject(
                PushObjectRequest(
                    node=self.node,
                    run_id=run,
                    session_id=pushed.session_id,
                    object_id=object_id,
                    object_content=objects[object_id],
                )
            )

    def _beat(self) -> None:
        """Tell the coordinator that this site is still there, also while it trains."""
        asked = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT_MIN_INTERVAL)
        missed, pause = 0, _BEAT_SECONDS
        while not self._closing.wait(pause):
            try:
                with self._translate_errors():
                    self.client.SendNodeHeartbeat(asked)
                missed, pause = 0, _BEAT_SECONDS
            except DisconnectedError as err:
                missed, pause = missed + 1, _SHORTEST_PAUSE
                if err.refused or missed >= _MOST_MISSED_BEATS:  # a busy one may miss one or two
                    self._lost.append(str(err))
                    return

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """What went wrong with a connection, in one sentence."""
        try:
            yield
        except httpx.HTTPStatusError as err:
            refusal = DisconnectedError(_describe_status(err, self.address))
            refusal.refused = True
            raise refusal from err
        except (httpx.HTTPError, OSError, RuntimeError) as err:
            raise DisconnectedError(_describe_failure(err, self.address)) from err


class UnfitResponseError(httpx.HTTPError):
    """A response that no coordinator of ours gives."""


def distrust_responses(client: httpx.Client, largest: int) -> None:
    """Follow no redirect, which could lead to other machines of the site's network, and read no
    response that is a refusal, packed, of unknown length, or too large."""
    client.follow_redirects = False
    client.headers["accept-encoding"] = "identity"

    def check(response: httpx.Response) -> None:
        response.raise_for_status()
        length = response.headers.get("content-length", "")
        if not length.isdecimal() or "content-encoding" in response.headers:
            raise UnfitResponseError("its answer does not say how long it is")
        if int(length) >= largest:
            raise UnfitResponseError(f"its answer has {int(length):,} bytes, which is too much")

    client.event_hooks = {"request": [], "response": [check]}


def _describe_status(err: httpx.HTTPStatusError, address: str) -> str:
    code = err.response.status_code
    if code in NOT_LET_IN:
        return f"the coordinator at {address} does not know this site's key, or hears it already"
    return f"the coordinator at {address} refused the connection (status {code})"


def _describe_failure(err: Exception, address: str) -> str:
    text = str(err)
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        return f"whoever answers at {address} is not the coordinator that ca.pem is for"
    if isinstance(err, UnfitResponseError):
        return f"what answers at {address} is not heard: {text}"
    if isinstance(err, httpx.ConnectError):
        return f"nobody answers at {address}"
    return f"the connection to {address} was lost ({type(err).__name__})"
