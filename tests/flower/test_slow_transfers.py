"""Many, slow and half-sent transfers: the coordinator stays there for the others, in bounds."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.message_pb2 import PullObjectRequest
from flwr.proto.node_pb2 import Node
from tests.flower.test_hostile_nodes import make_headers

from vitrail.flower.coordinator import connections as connections_module
from vitrail.flower.coordinator.connections import Connections, allow_handles
from vitrail.flower.coordinator.fleet_link import FleetLink
from vitrail.flower.coordinator.fleet_server import FleetServer
from vitrail.flower.keys import make_keys
from vitrail.flower.ports import find_free_port
from vitrail.flower.site.fleet_client import FleetClient

pytestmark = pytest.mark.timeout(300)
MANY = 200
CONTENT = 2 * 2**20
PULL, PUSH = "/v1/fleet/pull-object", "/v1/fleet/push-object"


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A coordinator whose patience is a second where it is half a minute otherwise."""
    monkeypatch.setattr(connections_module, "_HEAD_SECONDS", 3.0)
    monkeypatch.setattr(connections_module, "_SILENT_SECONDS", 3.0)
    keys = make_keys(tmp_path / "keys", ["east", "north"], ["localhost"])
    port = find_free_port()
    with FleetServer("127.0.0.1", port, keys, tmp_path / "scratch") as server:
        server.limit_replies(2**26)
        yield server, keys, port


def connect(keys, port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(keys.authority))
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    return context.wrap_socket(plain, server_hostname="localhost")


def write_head(path: str, headers: dict[str, str], length: int) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def count_handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def read_resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def honest_site(fleet, folder: Path, site: str = "north"):
    """A site that answers whatever it is asked; the seconds that an exchange with it takes."""
    server, keys, port = fleet
    leaving = threading.Event()
    client = FleetClient(f"localhost:{port}", keys.site(site), folder)
    work = (lambda raw: raw[::-1], leaving, lambda _: None)
    thread = threading.Thread(target=client.serve, args=work, daemon=True)
    thread.start()
    link = FleetLink(server)

    def exchange() -> float:
        began = time.monotonic()
        raw = bytes(range(256)) * (CONTENT // 256)
        assert list(link.ask([site], lambda _: raw, 60.0)) == [(site, raw[::-1])]
        return time.monotonic() - began

    try:
        while site not in link.present():
            time.sleep(0.05)
        yield exchange
    finally:
        leaving.set()
        thread.join(20)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has hung up; what it sent before that is read away."""
    connection.settimeout(0.2)
    try:
        while connection.recv(2**16):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


def wait_until_closed(held: list[socket.socket], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not all(is_closed(one) for one in held):
        assert time.monotonic() < deadline, "some connections were never cut off"


def open_silent(keys, port, number):
    """A connection that does not even shake hands."""
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def open_slow_head(keys, port, number):
    """The first bytes of a request, and then nothing."""
    held = connect(keys, port)
    held.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
    return held


def open_half_body(keys, port, number):
    """A registered key announces a content, and sends half of it."""
    held = connect(keys, port)
    held.sendall(write_head(PUSH, make_headers(keys, "east"), CONTENT) + bytes(CONTENT // 2))
    return held


@pytest.mark.parametrize("open_one", [open_silent, open_slow_head, open_half_body])
def test_200_connections_that_go_nowhere_hinder_nobody(fleet, tmp_path, open_one):
    server, keys, port = fleet
    with honest_site(fleet, tmp_path) as exchange, ExitStack() as stack:
        exchange()
        handles, memory = count_handles(), read_resident_mb()
        held: list[socket.socket] = []
        for number in range(MANY):
            with_errors = ExitStack()
            try:
                held.append(stack.enter_context(open_one(keys, port, number)))
            except OSError:  # it was cut off while it was still opened
                with_errors.close()
        assert len(held) > MANY // 2
        assert exchange() < 30
        kept = len(server._routes.connections)
        assert kept <= connections_module._MOST_STRANGERS + 2 * connections_module._MOST_OF_A_KEY
        # our own ends of the connections are handles of this process too
        assert count_handles() - handles - len(held) <= kept + 8
        assert read_resident_mb() - memory < 150
        wait_until_closed(held)
        assert exchange() < 30


def test_a_body_that_drips_is_cut_off(fleet, monkeypatch):
    """A byte now and then is never silent for long, and never ends."""
    monkeypatch.setattr(connections_module, "_LEAST_RATE", 2**10)
    _, keys, port = fleet
    with connect(keys, port) as held:
        held.sendall(write_head(PUSH, make_headers(keys, "east"), CONTENT))
        deadline = time.monotonic() + 40
        with pytest.raises(OSError):
            while time.monotonic() < deadline:
                held.sendall(b"x")
                time.sleep(0.3)


def leave_message(server, site: str) -> tuple[int, int, list[str]]:
    """A content that waits for a site to fetch it: its node, run and objects."""
    node = next(node for node, name in server.names.items() if name == site)
    link = FleetLink(server)
    before = set(server.state.object_store.store)
    link._push(node, os.urandom(8 * CONTENT), 60.0)
    return node, server.run_id, sorted(set(server.state.object_store.store) - before)


def test_a_node_that_never_reads_its_answers_holds_no_memory(fleet, tmp_path):
    server, keys, port = fleet
    with honest_site(fleet, tmp_path) as exchange, ExitStack() as stack:
        FleetClientOf = FleetClient(f"localhost:{port}", keys.site("east"), tmp_path)
        connection = stack.enter_context(FleetClientOf._connect())
        node, run, objects = leave_message(server, "east")
        connection.client.PullMessages(PullMessagesRequest(node=Node(node_id=node)))
        store = server.state.object_store
        largest = max(objects, key=lambda name: len(store.get(name) or b""))
        asked = PullObjectRequest(node=Node(node_id=node), run_id=run, object_id=largest)
        body = asked.SerializeToString()
        exchange()
        memory = read_resident_mb()
        held = []
        for _ in range(MANY // 4):
            one = stack.enter_context(connect(keys, port))
            one.sendall(write_head(PULL, make_headers(keys, "east"), len(body)) + body)
            held.append(one)
        time.sleep(1.0)
        assert exchange() < 30
        assert read_resident_mb() - memory < 200  # 50 answers of 16 MiB would be 800
        deadline = time.monotonic() + 40  # none of them is kept for one who does not read
        while len(server._routes.connections) > 4:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_head_without_an_end_is_refused(fleet):
    """httptools would have kept all of it."""
    _, keys, port = fleet
    memory = read_resident_mb()
    with connect(keys, port) as held, pytest.raises(OSError):
        held.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: localhost\r\n")
        for number in range(4000):
            held.sendall(f"x-{number}: ".encode() + b"y" * 8000 + b"\r\n")
    assert read_resident_mb() - memory < 60


class Ends:
    """Connections as a table sees them; `cut` are those it ended."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cut: list[tuple[str, int]] = []
        self.table = Connections(lambda: self.now, most_strangers=4)

    def open(self, host: str, port: int) -> None:
        self.table.admit((host, port), lambda: self.cut.append((host, port)))
        self.now += 0.01


def test_the_oldest_of_the_crowd_gives_way_and_others_stay() -> None:
    ends = Ends()
    ends.open("10.0.0.1", 1)
    for port in range(20):
        ends.open("10.6.6.6", port)
    assert ends.cut == [("10.6.6.6", port) for port in range(17)]
    assert len(ends.table) == 4


def test_a_key_has_few_connections_and_its_newest_ones_count() -> None:
    ends = Ends()
    for port in range(12):
        ends.open("10.0.0.1", port)
        ends.table.prove(ends.table.begin(("10.0.0.1", port)), b"key")
    assert ends.cut == [("10.0.0.1", port) for port in range(4)]


def test_a_strangers_answers_do_not_lengthen_its_stay() -> None:
    ends = Ends()
    ends.open("10.0.0.1", 1)
    for _ in range(40):
        ends.now += 1.0
        ends.table.end(ends.table.begin(("10.0.0.1", 1)))
        ends.table.sweep()
    assert ends.cut == [("10.0.0.1", 1)] and not len(ends.table)


def test_a_known_key_that_is_being_answered_is_not_cut_off() -> None:
    ends = Ends()
    ends.open("10.0.0.1", 1)
    connection = ends.table.begin(("10.0.0.1", 1))
    ends.table.prove(connection, b"key")
    ends.now += 10_000.0
    ends.table.sweep()
    assert not ends.cut
    ends.table.end(connection)
    ends.now += 10_000.0
    ends.table.sweep()
    assert ends.cut == [("10.0.0.1", 1)]


def test_strangers_are_few_where_files_are_few() -> None:
    assert 8 <= allow_handles(2) <= 128
