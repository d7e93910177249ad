"""Who is refused: other origins, other hosts, no token, paths, floods, bombs."""

import concurrent.futures
import io
import struct
import time
import zlib

import httpx
import pytest

from vitrail.errors import ConfigError
from vitrail.live.guard import Access
from vitrail.live.uploads import MOST_BYTES, Uploads

ASK = "/run/runs.myth/answer"


@pytest.fixture
def client(served):
    with httpx.Client(base_url=served.base, headers=served.headers, timeout=60) as client:
        yield client


def test_nothing_is_answered_without_the_token(served):
    for path in ("/", "/run/runs.myth", ASK, "/assets/live.js", "/upload"):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "vitrail-1=x"}):
            answer = httpx.get(served.base + path, headers=headers)
            assert answer.status_code == 403 and served.access.token not in answer.text
    assert httpx.get(f"{served.base}/?token=wrong").status_code == 403


def test_the_printed_link_sets_a_strict_cookie_and_hides_the_token(served):
    answer = httpx.get(served.access.link)
    assert answer.status_code == 303 and "token" not in answer.headers["location"]
    cookie = answer.headers["set-cookie"].casefold()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    jar = httpx.Client(follow_redirects=True)
    page = jar.get(served.access.link)
    assert page.status_code == 200 and "Watch" in page.text
    assert served.access.token not in page.text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "", "127.0.0.1:1"]
)
def test_another_host_name_is_refused(client, host):
    answer = client.get("/", headers={"host": host})
    assert answer.status_code in (400, 421)


@pytest.mark.parametrize("headers", [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
])  # fmt: skip
def test_another_origin_is_refused_even_with_the_cookie(served, headers):
    cookie = {"cookie": f"{served.access.cookie}={served.access.issue_pass()}"}
    for method, path in (("GET", "/"), ("POST", "/upload"), ("POST", "/run/runs.myth/stop")):
        answer = httpx.request(method, served.base + path, headers={**cookie, **headers})
        assert answer.status_code == 403


def test_a_cookie_alone_changes_nothing(served):
    cookie = {"cookie": f"{served.access.cookie}={served.access.issue_pass()}"}
    answer = httpx.post(f"{served.base}/upload", headers=cookie, content=b"x")
    assert answer.status_code == 403
    fine = {**cookie, "origin": served.base}
    assert httpx.post(f"{served.base}/upload", headers=fine, content=b"x").status_code == 200


@pytest.mark.parametrize("path", [
    "/run/..%2f..%2fetc", "/run/%2e%2e/ask", "/run/runs.myth%2f..%2f..%2fx/ask",
    "/assets/..%2fapplication.py", "/assets/%2e%2e/guard.py", "/run/nothing",
    "/run/runs.myth/figure/..%2f..%2fconfig.toml",
    "/run/runs.myth/image?image=test-..%2f..%2fconfig",
    "/run/runs.myth/image?image=up-../../etc/passwd",
    "/run/runs.myth/ledger.json?site=../../x",
])  # fmt: skip
def test_no_path_leads_out(client, path):
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert "[run]" not in answer.text and "root:" not in answer.text


def test_only_get_and_post(client):
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert client.request(method, "/").status_code == 405


def test_two_gigabytes_are_refused_while_they_come(served):
    sent = 0

    def chunks():
        nonlocal sent
        block = bytes(2**20)
        for _ in range(2048):
            sent += len(block)
            yield block

    with httpx.Client(timeout=60) as client:
        try:
            answer = client.post(f"{served.base}/upload", headers=served.headers, content=chunks())
            assert answer.status_code == 413
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            pass  # the connection was closed while we were still sending
    assert sent < 2**30
    assert httpx.get(f"{served.base}/", headers=served.headers).status_code == 200


def test_uploads_stay_bounded():
    kept = Uploads(most=100, kept=250)
    digests = [kept.put(f"{i}", bytes([i]) * 100) for i in range(5)]
    assert kept.get(digests[-1])[1] == bytes([4]) * 100
    with pytest.raises(Exception, match="no longer in memory"):
        kept.get(digests[0])
    assert MOST_BYTES <= 64 * 2**20


def make_bomb(side=60000):
    """A small PNG that says it has billions of pixels."""

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))  # fmt: skip

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))  # fmt: skip


@pytest.mark.parametrize("data", [make_bomb(), b"", b"GIF89a", b"%PDF-1.4", bytes(1000)])
def test_bombs_and_rubbish_are_one_sentence(client, data):
    image = client.post("/upload", content=data).json()["image"]
    answer = client.get(ASK, params={"image": image})
    assert answer.status_code == 400 and "this image" in answer.text
    assert "Traceback" not in answer.text


def make_deflated_scan(size):
    """A small DICOM file that becomes a large one when it is opened."""
    meta = b"\x02\x00\x10\x00UI\x16\x001.2.840.10008.1.2.1.99"
    head = bytes(128) + b"DICM\x02\x00\x00\x00UL\x04\x00" + struct.pack("<I", len(meta)) + meta
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    element = b"\x09\x00\x10\x10OB\x00\x00" + struct.pack("<I", size)
    parts = [stream.compress(element), *(stream.compress(bytes(2**20)) for _ in range(size >> 20))]
    return head + b"".join(parts) + stream.flush()


def test_a_scan_that_unfolds_is_refused_before_it_does(client):
    data = make_deflated_scan(600 * 2**20)
    assert len(data) < 2**20
    image = client.post("/upload", content=data, headers={"x-name": "scan.dcm"}).json()["image"]
    answer = client.get(ASK, params={"image": image})
    assert answer.status_code == 400 and "deflated" in answer.text


@pytest.mark.parametrize("query", [
    "cover=1,2", "cover=a,b,c,d", "cover=nan,0,1,1", "pull=x", "pull=inf", "top=0", "top=999",
    "without=x", "without=99999", "how=burn", "image=zzz", "class=unicorn",
    "cover=" + ";".join(["0,0,9,9"] * 100),
])  # fmt: skip
def test_odd_addresses_are_one_sentence(client, query):
    row = client.get("/run/runs.myth/ask").text.split('data-image="')[1].split('"')[0]
    image = "" if query.startswith("image") else f"&image={row}"
    answer = client.get(f"{ASK}?{query}{image}")
    assert answer.status_code == 400 and 'role="alert"' in answer.text


def test_markup_in_names_stays_text(client):
    headers = {"x-name": "<script>alert(1)</script>.png"}
    image = client.post("/upload", content=b"x", headers=headers).json()["image"]
    row = client.get("/run/runs.myth/ask").text.split('data-image="')[1].split('"')[0]
    page = client.get(ASK, params={"image": row, "other": row, "class": "<b>"}).text
    assert "<b>" not in page or "there is no class" in page
    assert "<script>alert" not in page and image.startswith("up-")


def test_200_requests_at_once_are_answered_or_asked_to_wait(served):
    with httpx.Client(headers=served.headers, timeout=120) as client:
        page = client.get(f"{served.base}/run/runs.myth/ask").text
        row = page.split('data-image="')[1].split('"')[0]
        address = f"{served.base}{ASK}?image={row}&cover=2,2,12,12"
        assert client.get(address).status_code == 200

    def ask(_):
        return httpx.get(address, headers=served.headers, timeout=120).status_code

    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        codes = list(pool.map(ask, range(200)))
    assert set(codes) <= {200, 503} and codes.count(200) >= 60
    assert ask(0) == 200


def test_another_interface_needs_its_password():
    access = Access("192.0.2.1", 443, password="a long password", tls=True)
    assert access.token not in access.link and access.link.startswith("https://")
    assert not access.accepts_password("wrong", "192.0.2.7")
    assert not access.accepts_password("a long password", "192.0.2.7")  # too soon after that
    assert access.accepts_password("a long password", "192.0.2.8")  # nobody else has to wait


def test_wrong_passwords_wait_longer_each_time_and_fill_no_memory(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("vitrail.live.guard.time.monotonic", lambda: now[0])
    access = Access("192.0.2.1", 443, password="a long password", tls=True)
    waits = []
    for _ in range(8):
        assert not access.accepts_password("wrong", "2001:db8::1")
        began = now[0]
        while not access.attempts.is_open("2001:db8::2"):  # the same network, so the same guest
            now[0] += 0.5
        waits.append(now[0] - began)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert access.attempts.is_open("2001:db8:1::1")
    for n in range(10_000):
        access.accepts_password("wrong", f"10.0.{n // 250}.{n % 250}")
    assert len(access.attempts._waits) <= 4096


def test_the_cookie_is_not_the_token_and_ends(monkeypatch):
    access, other = Access("127.0.0.1", 1), Access("127.0.0.1", 1)
    given = access.issue_pass()
    assert access.token not in given and not access.knows(given)
    assert access.accepts_pass(given) and not other.accepts_pass(given)
    assert not access.accepts_pass(access.token)
    for bad in ("", ".", "..", "1.x.", given[:-1], given + "0", f"9{given}", "x" * 10_000, "é.ü"):
        assert not access.accepts_pass(bad)
    again = Access("127.0.0.1", 1, token=access.token)
    assert again.accepts_pass(given)  # open pages survive a restart with --token-file
    now = time.time()
    monkeypatch.setattr("vitrail.live.guard.time.time", lambda: now + 8 * 86400)
    assert not access.accepts_pass(given)


def test_the_command_refuses_another_interface_without_tls():
    from vitrail.cli.serve import _choose_password

    assert _choose_password("127.0.0.1", None, None) is None
    with pytest.raises(ConfigError, match="--tls-cert"):
        _choose_password("0.0.0.0", None, None)


def test_a_password_opens_the_door(live_runs):
    from starlette.testclient import TestClient

    from vitrail.live.application import make_application
    from vitrail.live.catalog import Catalog

    access = Access("192.0.2.1", 443, password="a long password", tls=True)
    application = make_application(Catalog([live_runs]), access)
    base = "https://192.0.2.1:443"
    client = TestClient(application, base_url=base, follow_redirects=False)
    client.headers["host"] = "192.0.2.1:443"
    assert client.get("/").status_code == 401
    assert client.get(f"/?token={access.token}").status_code == 401
    origin = {"origin": base}
    wrong = client.post("/login", data={"password": "x"}, headers=origin)
    assert wrong.status_code == 403
    access.attempts.note("testclient", is_right=True)
    right = client.post("/login", data={"password": "a long password"}, headers=origin)
    assert right.status_code == 303 and "secure" in right.headers["set-cookie"].casefold()


def test_uploads_are_never_written(served, client, live_runs):
    before = sorted(p for p in live_runs.rglob("*"))
    buffer = io.BytesIO(make_bomb())
    image = client.post("/upload", content=buffer.getvalue()).json()["image"]
    client.get(ASK, params={"image": image})
    assert sorted(p for p in live_runs.rglob("*")) == before
