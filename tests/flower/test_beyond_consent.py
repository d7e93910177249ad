"""What a registered site, a coordinator and the giver of a folder tried beyond what they may."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import Message
from flwr.common.constant import SUPERLINK_NODE_ID
from tests.flower.conftest import Loop
from tests.flower.test_hostile_nodes import announce, ask_hostile, fleet, push  # noqa: F401
from tests.live.test_malformed import make_client

import vitrail
from vitrail.audit.detection.class_summary import ClassSummary
from vitrail.data.shared_memory import SharedArray
from vitrail.engine.tasks import MissingReply
from vitrail.engine.workers.processes import WorkerProcess
from vitrail.errors import DataError
from vitrail.flower.carrier import pack_message, wrap_bytes
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.ports import find_free_port
from vitrail.flower.run_terms import make_terms, resolve_terms
from vitrail.flower.site.resident_process import ResidentLostError, ResidentProcess
from vitrail.flower.site.site_events import open_events
from vitrail.flower.site.site_server import SiteServer
from vitrail.flower.versions import list_versions

pytestmark = pytest.mark.timeout(300)
PARTS = {"backbone": "small-cnn", "width": 4, "prototypes": {"per_class": 2, "depth": 8}}


def make_order(run: int, to: int, number: int) -> Message:
    """A message of a site that says it comes from the coordinator."""
    order = Message(wrap_bytes(bytes(1000) + bytes([number])), to, "train", ttl=3600.0)
    order.metadata.__dict__["_run_id"] = run
    order.metadata.__dict__["_src_node_id"] = SUPERLINK_NODE_ID
    return order


@pytest.mark.parametrize("to_itself", [True, False])
def test_a_site_sends_no_message_in_the_coordinators_name(to_itself, fleet, tmp_path):  # noqa: F811
    """To the coordinator it would fill its disk; to another node it would be obeyed there."""
    server = fleet[0]
    north = next(node for node, name in server.names.items() if name == "north")
    taken: list[int] = []

    def act(connection, received) -> None:
        run = received.metadata.run_id
        server.state.activate_node(north, 30.0)  # it is there too
        for number in range(4):
            order = make_order(run, SUPERLINK_NODE_ID if to_itself else north, number)
            tree, objects = pack_message(order)
            pushed = announce(connection, order, tree)
            taken.append(len(pushed.objects_to_push))
            for name, content in objects.items():
                push(connection, run, pushed.session_id, name, content)

    assert ask_hostile(fleet, tmp_path, act) == [("east", MissingReply("it was too late"))]
    assert taken == [0, 0, 0, 0]
    assert list(server.state.object_store.folder.rglob("*")) == []
    assert not server.state.message_ins_store


def test_a_site_compares_along_one_set_of_directions(birds, tmp_path):
    """A coordinator that makes up other means each time, or other sites, would learn features one
    by one."""
    run = {**birds.terms["run"], "rounds": 1, "local_reference": True}
    terms = {"method": {"name": "myth-gm"}, "model": PARTS, "run": run}
    loop = birds.loop(tmp_path)
    ask, told = loop.ask, []

    def curious(sites, make_message, patience):
        for site in sites:
            letter = unseal(make_message(site))
            if letter.kind == "compare" and site == "north":
                for sign, more in ((1, 20), (1, 0), (-1, 0)):
                    tables = {**letter.body["tables"]}
                    west = ClassSummary.from_json(tables["west"]["summary"])
                    made_up = replace(west, means=sign * west.means)
                    tables["west"] = {"summary": made_up.to_json()}
                    tables |= {f"site-{i}": tables["west"] for i in range(more)}
                    body = {**letter.body, "tables": tables}
                    raw = seal("compare", letter.run, site, body)
                    told.append(unseal(loop.stations["north"].answer(raw)))
        yield from ask(sites, make_message, patience)

    loop.ask = curious
    run_federation(loop, birds.coordinator(**terms), tmp_path / "run", 3)
    assert [letter.kind for letter in told] == ["error", "compare", "compare"]
    assert told[1].body["histograms"]["counts"] == told[2].body["histograms"]["counts"]
    ledger = next(tmp_path.glob("at-north/runs/*/sites/north/ledger.jsonl")).read_text()
    assert ledger.count("audit histograms") == 1


def start_worker(folder: Path) -> None:
    WorkerProcess.start().end()


def start_resident(folder: Path) -> None:
    missing, log = folder / "none.toml", folder / "resident.log"
    with pytest.raises(ResidentLostError):
        ResidentProcess(missing, None, False, log, lambda _: None).start()


@pytest.mark.parametrize("start", [start_worker, start_resident])
def test_no_process_takes_code_from_the_folder_it_is_started_in(start, tmp_path, monkeypatch):
    """Whoever reads a folder often stands in it; `python -m` would look there first."""
    (tmp_path / "struct.py").write_text("open('ran', 'w').close()\nraise SystemExit(3)\n")
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])  # as commands have it
    monkeypatch.chdir(tmp_path)
    start(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def foreign(tiny_config, tmp_path, monkeypatch):
    """A run folder of somebody else, which names a plug-in, and what is there once it ran."""
    monkeypatch.delenv("VITRAIL_ALLOW_PLUGINS", raising=False)
    run = vitrail.run(tiny_config(run={"rounds": 1}), tmp_path / "runs" / "run").path
    marker = tmp_path / "executed"
    (run / "evil.py").write_text(f"open({str(marker)!r}, 'w').close()\nraise SystemExit(3)\n")
    config = run / "config.toml"
    config.write_text(config.read_text().replace("plugins = []", 'plugins = ["evil.py"]'))
    (run / "other.toml").write_text(
        '[data]\nclasses = ["a", "b"]\nimage_size = 32\nchannels = 3\n'
        '[model]\nbackbone = "small-cnn"\n[run]\nplugins = ["evil.py"]\n'
    )
    (run / "server" / "finished").unlink()
    entry = {"site": "site0", "classes": [{"class": "0", "verdict": "biased"}]}
    (run / "audit-decided.json").write_text(json.dumps({"sites": [entry]}))
    return run, marker


@pytest.mark.parametrize(
    "words",
    [None, ["other.toml", "--out", "new"], ["config.toml", "--out", ".", "--allow-plugins"]],
)
def test_no_button_of_a_live_page_runs_code_of_a_foreign_folder(words, foreign, monkeypatch):
    """The remedy reads the folder's configuration; going on says words that lie in the folder."""
    run, marker = foreign
    started: list[subprocess.Popen] = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )
    client = make_client(run.parent)
    if words is None:
        client.post("/run/runs.run/remedy")
    else:
        (run / "server" / "flower.json").write_text("run")
        serve = ["flower", "server", "--insecure", "--sites", "1"]
        serve += ["--port", str(find_free_port()), *words]
        (run / "server" / "command.json").write_text(json.dumps(serve))
        monkeypatch.chdir(run)
        client.post("/run/runs.run/resume")
    for process in started:
        process.wait(120)
    assert not marker.exists()
    if started:
        said = "".join(log.read_text() for log in (*run.glob("*.log"), *run.glob("remedies/*.log")))
        assert "names a plug-in" in said
    else:
        assert words and "--allow-plugins" in words


def test_terms_that_nobody_agreed_to_fill_no_disk(birds, tmp_path):
    """A refusal names what it refuses; a megabyte of it would stand in the site's events."""
    north = SiteServer(birds.home("north", tmp_path, yes=False), seeded=True)
    terms = make_terms(resolve_terms(birds.coordinator()).config)
    terms["model"]["backbone"] = "\x1b[2J" + "x" * 2**20
    hello = {"terms": terms, "versions": list_versions()}
    assert unseal(north.answer(seal("hello", "run", "north", hello))).kind == "error"
    kept = [path for path in north.config.folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in kept) < 2**16
    events = open_events(north.config).read()
    assert events and "\x1b" not in str([event["why"] for event in events])


def test_a_round_that_is_asked_again_hides_no_later_one(birds, tmp_path):
    """A coordinator that repeats its first message would take the site's own figures away."""
    stations = {s: SiteServer(birds.home(s, tmp_path)) for s in ("east", "north", "west")}
    loop = Loop(stations)
    ask, again = loop.ask, []

    def repeating(sites, make_message, patience):
        turns = [raw for name, raw in loop.asked if name == "north" and unseal(raw).kind == "turn"]
        if len(turns) == 2 and not again:  # both rounds were played, and the closing turn comes
            again.append(unseal(stations["north"].answer(turns[0])).kind)
        yield from ask(sites, make_message, patience)

    loop.ask = repeating
    run_federation(loop, birds.coordinator(), tmp_path / "run", 3)
    rows = next((tmp_path / "at-north" / "runs").iterdir()) / "metrics.jsonl"
    played = [json.loads(line)["at"] for line in rows.read_text().splitlines()]
    assert again == ["turn"] and {1, 2, 3} <= set(played), played


def test_images_that_no_disk_holds_are_refused_before_one_is_decoded(tmp_path, monkeypatch):
    """Terms choose the size of images; a file that is filled page by page fills the disk."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path))
    size = shutil.disk_usage(tmp_path).free + 2**30
    with pytest.raises(DataError, match="no room"):
        SharedArray.zeros((size,), place="disk")
