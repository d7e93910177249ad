"""What a stranger, a registered site and a coordinator try over the wire, beyond what they may."""

from __future__ import annotations

import gzip
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import serialization
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from vitrail.engine.tasks import MissingReply
from vitrail.flower.carrier import pack_message, wrap_bytes
from vitrail.flower.coordinator.allowed_routes import ROUTES
from vitrail.flower.coordinator.fleet_link import FleetLink
from vitrail.flower.coordinator.fleet_server import FleetServer
from vitrail.flower.keys import make_keys
from vitrail.flower.ports import find_free_port
from vitrail.flower.site.fleet_client import FleetClient, UnfitResponseError, distrust_responses

pytestmark = pytest.mark.timeout(300)
PUSH = "/v1/fleet/push-object"


@pytest.fixture
def fleet(tmp_path):
    keys = make_keys(tmp_path / "keys", ["east", "north"], ["localhost"])
    port = find_free_port()
    with FleetServer("127.0.0.1", port, keys, tmp_path / "scratch") as server:
        asked: list[str] = []
        app = server._routes.app

        async def watched(scope, receive, send) -> None:
            asked.append(scope["path"])
            await app(scope, receive, send)

        server._routes.app = watched
        yield server, keys, f"https://localhost:{port}", asked


def open_client(keys) -> httpx.Client:
    return httpx.Client(verify=ssl.create_default_context(cafile=str(keys.authority)), timeout=20)


def make_headers(keys, site: str, sign: bool = True) -> dict[str, str]:
    """What a node's own program sends; without a signature, what whoever saw its key could."""
    raw = (keys.site(site) / "node.key").read_bytes()
    private = serialization.load_ssh_private_key(raw, None)
    request = httpx.Request("POST", "https://localhost/")

    class Context:
        pass

    context = Context()
    context.request = request
    NodeAuthHttpInterceptor(private, private.public_key()).intercept(context, lambda _: None)
    headers = {
        name: value
        for name, value in request.headers.items()
        if name not in ("host", "content-length")
    }
    if not sign:
        headers = {n: v if "signature" not in n else "AAAA" for n, v in headers.items()}
    return {**headers, "content-type": PROTOBUF_MEDIA_TYPE}


def test_nothing_of_a_strangers_request_is_read(fleet):
    """Flower reads and parses a whole body before it looks at the key."""
    _, keys, address, asked = fleet
    with open_client(keys) as client:
        for path in sorted(ROUTES):
            assert client.post(address + path, content=b"x" * 2**20).status_code == 401
    assert asked == []


def test_a_key_that_is_known_and_not_held_sends_no_content(fleet):
    _, keys, address, asked = fleet
    with open_client(keys) as client:
        headers = make_headers(keys, "east", sign=False)
        assert client.post(address + PUSH, content=b"x" * 2**20, headers=headers).status_code == 401
    assert asked == []


def send_in_pieces(size: int) -> Iterator[bytes]:
    for _ in range(size // 2**16):
        yield b"x" * 2**16


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize(("path", "limit"), [(PUSH, 2**20), ("/v1/fleet/push-messages", 2**16)])
def test_a_site_sends_no_more_than_a_reply_may_have(fleet, path, limit, pieces):
    server, keys, address, _ = fleet
    server.limit_replies(limit)
    size = 2 * limit + 2**20
    content = send_in_pieces(size) if pieces else b"x" * size
    with open_client(keys) as client:
        try:
            answer = client.post(
                address + path, content=content, headers=make_headers(keys, "east")
            )
            assert answer.status_code == 413
        except (httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):
            pass  # it hung up while we were still sending
    kept = list(server.state.object_store.folder.rglob("*"))
    assert kept == []


class HostileSite:
    """A registered site that speaks Fleet by itself; `act` gets its connection and each message."""

    def __init__(self, address: str, keys, folder: Path, act) -> None:
        self.client = FleetClient(address, keys.site("east"), folder)
        self.act = act
        self.leaving = threading.Event()

    def serve(self) -> None:
        with self.client._connect() as connection:
            while not self.leaving.is_set():
                received = connection._receive()
                if received is not None:
                    self.act(connection, received)
                self.leaving.wait(0.1)


def ask_hostile(fleet, tmp_path, act, patience: float = 3.0):
    server, keys, address, _ = fleet
    site = HostileSite(address.removeprefix("https://"), keys, tmp_path, act)
    thread = threading.Thread(target=site.serve, daemon=True)
    thread.start()
    link = FleetLink(server)
    try:
        while link.present() != ("east",):
            time.sleep(0.05)
        return list(link.ask(["east"], lambda _: b"question", patience))
    finally:
        site.leaving.set()
        thread.join(20)


def announce(connection, reply: Message, tree):
    return connection.client.PushMessages(
        PushMessagesRequest(
            node=connection.node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[tree],
            clientapp_runtime_list=[0.0],
        )
    )


def push(connection, run: int, session: str, name: str, content: bytes) -> None:
    connection.client.PushObject(
        PushObjectRequest(
            node=connection.node,
            run_id=run,
            session_id=session,
            object_id=name,
            object_content=content,
        )
    )


def test_a_site_cannot_send_many_contents_as_one_reply(fleet, tmp_path):
    """Flower takes a tree of contents each time a reply is announced, under the same name."""
    taken: list[int] = []

    def act(connection, received) -> None:
        reply = Message(wrap_bytes(b"first"), reply_to=received)
        tree, _ = pack_message(reply)
        taken.append(len(announce(connection, reply, tree).objects_to_push))
        for number in range(5):
            other = Message(wrap_bytes(bytes(1000) + bytes([number])), reply_to=received)
            others_tree, objects = pack_message(other)
            pushed = announce(connection, reply, others_tree)
            taken.append(len(pushed.objects_to_push))
            for name, content in objects.items():
                push(connection, reply.metadata.run_id, pushed.session_id, name, content)

    server = fleet[0]
    ((site, answer),) = ask_hostile(fleet, tmp_path, act)
    assert (site, answer) == ("east", MissingReply("it was too late"))
    assert taken == [3, 0, 0, 0, 0, 0]
    assert len(server.state._object_push_sessions) <= 1  # refused ones are not remembered


def test_a_reply_that_never_becomes_whole_leaves_nothing_on_the_disk(fleet, tmp_path):
    """Round after round of them would fill it."""
    on_disk: list[int] = []
    server = fleet[0]
    folder = server.state.object_store.folder

    def act(connection, received) -> None:
        reply = Message(wrap_bytes(bytes(5000)), reply_to=received)
        tree, objects = pack_message(reply)
        pushed = announce(connection, reply, tree)
        name = max(objects, key=lambda name: len(objects[name]))
        push(connection, reply.metadata.run_id, pushed.session_id, name, objects[name])
        on_disk.append(sum(path.stat().st_size for path in folder.iterdir()))

    ((_, answer),) = ask_hostile(fleet, tmp_path, act)
    assert answer == MissingReply("it was too late")
    assert on_disk[0] > 5000 and list(folder.iterdir()) == []
    assert not server.state.object_store.store and not server.state.message_res_store


class _Coordinator(BaseHTTPRequestHandler):
    """A hostile coordinator: each path has a trick of its own."""

    reached: list[str] = []

    def do_POST(self) -> None:
        self.reached.append(self.path)
        body = gzip.compress(bytes(10_000_000))
        self.send_response(307 if self.path == "/redirect" else 200)
        if self.path == "/redirect":
            self.send_header("Location", "/elsewhere")
        if self.path == "/packed":
            self.send_header("Content-Encoding", "gzip")
        if self.path != "/endless":
            self.send_header("Content-Length", str(2**40 if self.path == "/huge" else len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def coordinator():
    server = HTTPServer(("127.0.0.1", 0), _Coordinator)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_site_follows_no_redirect_and_reads_no_unfit_answer(coordinator):
    """A redirect would make the site's own machine ask whatever its network lets it reach."""
    _Coordinator.reached.clear()
    with httpx.Client(follow_redirects=True, timeout=20) as client:
        distrust_responses(client, 2**20)
        with pytest.raises(httpx.HTTPStatusError, match="307"):
            client.post(f"{coordinator}/redirect")
        assert client.post(f"{coordinator}/fine").status_code == 200
        for path in ("packed", "huge", "endless"):
            with pytest.raises(UnfitResponseError):
                client.post(f"{coordinator}/{path}")
    assert "/elsewhere" not in _Coordinator.reached
