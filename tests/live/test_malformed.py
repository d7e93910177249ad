"""Whatever an address or a form says: one sentence, never a crash, never another site's data."""

import contextlib
import json
import shutil

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from vitrail.engine.federation import SERVER
from vitrail.live.application import make_application
from vitrail.live.catalog import Catalog
from vitrail.live.guard import Access

RUN = "/run/runs.myth"
ODD = ("", "abc", "1e19", "-1e308", "nan", "inf", "0", "-1", "9" * 400, "\x00", "\ud7ff", "<b>",
       "..", "a,b", "1,2,3,4", "0.1,0.1,0.2,0.2", "1e19,1e19,1e20,1e20", "-5,-5,1e19,1e19", "3;4.1",
       "9999999999999999999999", "1.99999999999999999999", "test-0", "test-1e3", "up-0", "test-٣",
       "%", "&", ";;;", "∞", "x" * 5000)  # fmt: skip
KEYS = ("image", "cover", "how", "paste", "without", "pull", "model", "class", "top", "other",
        "show", "true", "taken", "site", "left", "right", "bottom", "verdict", "by", "note",
        "token", "zzz", "share", "shown", "row", "number", "about",
        "use", "digest", "page", "terms", "run", "yes")  # fmt: skip


def make_client(path, site=None):
    access = Access("127.0.0.1", 80)
    paths = path if isinstance(path, tuple) else (path,)
    application = make_application(Catalog(paths, site), access)
    client = TestClient(
        application, "http://127.0.0.1:80", raise_server_exceptions=False, follow_redirects=False
    )
    client.headers.update({"authorization": f"Bearer {access.token}", "host": "127.0.0.1:80"})
    return client


@pytest.fixture(scope="module")
def inside(live_runs):
    return make_client(live_runs)


@pytest.fixture(scope="module")
def at_north(hospital):
    shutil.copy(hospital / "secret" / "config.toml", hospital.parent / "runs.secret.toml")
    return make_client((hospital, hospital.parent / "runs.secret.toml"), "north")


def list_routes(client):
    """Every address of the application, so that a new one is tried without being named here."""
    return [
        (route.path, "POST" if "POST" in route.methods else "GET") for route in client.app.routes
    ]


@pytest.mark.parametrize("query", [
    "cover=1e19,1e19,1e20,1e20", "cover=0,0,1e19,1e19", "cover=-1e300,0,5,5",
    "cover=0.1,0.1,0.2,0.2", "without=99999999999999999999", "without=1.9999999999999999999999",
    "how=paste&paste=test-99999999999999999999",
])  # fmt: skip
def test_huge_numbers_are_no_crash(inside, query):
    row = inside.get(f"{RUN}/ask").text.split('data-image="')[1].split('"')[0]
    answer = inside.get(f"{RUN}/answer?image={row}&{query}")
    assert answer.status_code in (200, 400), answer.text[:300]


@pytest.mark.parametrize("field", ["left", "top", "right", "bottom"])
def test_words_for_edges_are_one_sentence(inside, live_runs, field):
    audit = json.loads((live_runs / "myth" / "audit.json").read_text())
    site = audit["sites"][0]
    form = {"site": site["site"], "class": site["classes"][0]["class"], "verdict": "biased"}
    form |= {"by": "me", "left": "1", "top": "1", "right": "5", "bottom": "5", field: "abc"}
    answer = inside.post(f"{RUN}/decide", data=form)
    assert answer.status_code == 400 and "numbers" in answer.text


def test_a_form_is_short_and_about_what_the_audit_has(inside, live_runs):
    form = {"site": "nowhere", "class": "unicorn", "verdict": "biased", "by": "me"}
    before = sorted(p.name for p in (live_runs / "myth").iterdir())
    answer = inside.post(f"{RUN}/decide", data=form)
    assert answer.status_code == 400 and "no such finding" in answer.text
    long = inside.post(f"{RUN}/decide", data={**form, "note": "x" * 200_000})
    assert long.status_code == 413
    assert sorted(p.name for p in (live_runs / "myth").iterdir()) == before


def test_a_site_cannot_decide_about_another(at_north, hospital):
    form = {"class": "a", "verdict": "clear", "by": "me"}
    assert (
        at_north.post("/run/runs.secret/decide", data={**form, "site": "south"}).status_code == 400
    )
    assert not (hospital / "secret" / "decisions.jsonl").exists()


def test_a_site_reads_no_figure_of_another(at_north, hospital):
    metrics = at_north.get("/run/runs.secret/metrics.json").json()
    assert {row["site"] for row in metrics} == {"north", SERVER}
    lines = [{"site": name, "class": "a", "verdict": "clear", "box": None, "note": f"of {name}",
              "by": "x", "at": "now"} for name in ("north", "south")]  # fmt: skip
    file = hospital / "secret" / "decisions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        for path in ("decided.json", "decisions.jsonl", "audit", "leaves", "state", "browse",
                     "parts", "metrics.json", "figure/accuracy.csv", ""):  # fmt: skip
            answer = at_north.get(f"/run/runs.secret/{path}".rstrip("/"))
            assert answer.status_code in (200, 400), path
            assert "south" not in answer.text, path
    finally:
        file.unlink()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_address_crashes_or_tells_of_another_site(inside, at_north, data):
    client, name = data.draw(st.sampled_from([(inside, "runs.myth"), (at_north, "runs.secret")]))
    for path, method in list_routes(client):
        odd = st.sampled_from(ODD) | st.text(max_size=20)
        query = data.draw(st.lists(st.tuples(st.sampled_from(KEYS), odd), max_size=5))
        query = [(k, v.encode("utf-8", "replace").decode()) for k, v in query]
        if path.rsplit("/", 1)[-1] in ("remedy", "resume", "preview") and method == "POST":
            continue  # these start processes; see the tests of those
        word = data.draw(st.sampled_from(["accuracy", "..", "x", "%2e%2e"]))
        kind = data.draw(st.sampled_from(["svg", "png", "csv", "json", "exe"]))
        where = path.replace("{run}", name).replace("{name}", word).replace("{kind}", kind)
        if method == "POST":
            answer = client.post(where, data=dict(query))
        else:
            answer = client.get(where, params=query)
        assert answer.status_code < 500, (where, query, answer.text[:200])
        assert "Traceback" not in answer.text
        if name == "runs.secret" and not any("south" in value for _, value in query):
            assert "south" not in answer.text, (where, query)


def test_a_folder_with_an_odd_name_can_be_opened(tmp_path, live_runs, serve_runs):
    odd = tmp_path / "a #1?<b>&\"'%2e é"
    odd.mkdir()
    (odd / "run").symlink_to(live_runs / "myth")  # links are not followed
    shutil.copytree(live_runs / "fedavg", odd / "x y")
    served = serve_runs(odd)
    client = httpx.Client(base_url=served.base, headers=served.headers, timeout=60)
    page = client.get("/").text
    link = page.split('scope="row"><a href="')[1].split('"')[0]
    assert page.count('scope="row"') == 1 and "<b>" not in page
    assert client.get(link).status_code == 200
    assert client.get(f"{link}/ask").status_code == 200


def test_bodies_are_bounded_whatever_the_header_says(served):
    def chunks():
        for _ in range(40):
            yield bytes(2**14)

    answer = httpx.post(f"{served.base}{RUN}/decide", headers=served.headers, content=chunks())
    assert answer.status_code == 413
    for length in ("9" * 5000, "-1", "٣"):
        headers = {**served.headers, "content-length": length.encode()}
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(f"{served.base}/upload", headers=headers)
    assert httpx.get(f"{served.base}/", headers=served.headers).status_code == 200
