"""Both ends of a real federation watched on live pages; the coordinator stopped, and gone on with,
from its page."""

from __future__ import annotations

import os
import sys

import pytest
from tests.live.test_malformed import make_client

from vitrail.config import dump
from vitrail.engine.storage.server_words import read_command
from vitrail.flower.ports import find_free_port
from vitrail.runs.opened_run import Run

from .test_processes import SITES, field, until  # noqa: F401

pytest.importorskip("flwr")
pytestmark = [pytest.mark.very_slow, pytest.mark.timeout(900)]


def test_both_ends_are_watched_stopped_and_gone_on_with(birds, field, monkeypatch):  # noqa: F811
    root, go = field
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    terms = {"run": {"rounds": 12, "batch_size": 8, "seed": 5}}
    (root / "fed.toml").write_text(dump(birds.coordinator(**terms).config))
    port = str(find_free_port())
    serve = ("server", "fed.toml", "--out", "runs/fed", "--port", port, "--sites", "3")
    server = go(*serve, "--insecure", log="server.log")
    attend = ("--server", f"127.0.0.1:{port}", "--insecure", "--yes")
    for name in SITES:
        go("site", "--file", f"{name}.toml", *attend, log=f"{name}.log")
    run = root / "runs" / "fed"
    until((run / "server" / "checkpoints" / "round-00001.safetensors").exists)

    office = make_client(root / "runs")
    page = office.get("/run/runs.fed").text
    assert "running" in page and 'id="stop"' in page
    east = make_client(root / "east.toml")
    name = east.app.state.live.catalog.list_runs()
    (own,) = name
    seen = east.get(f"/run/{own}").text
    assert "running" in seen and "this site answers" in seen and 'id="stop"' not in seen
    assert east.post(f"/run/{own}/stop").status_code == 400
    for path in ("state", "leaves", "metrics.json", "ask"):
        answer = east.get(f"/run/{own}/{path}")
        assert answer.status_code == 200, (path, answer.text[:300])
        assert "north" not in answer.text and "west" not in answer.text

    assert office.post("/run/runs.fed/stop").status_code == 200
    # the coordinator may have taken the request, and be on its way out, by the time we look
    until(lambda: "stopping" in office.get("/run/runs.fed/state").text or server.poll() is not None)
    server.wait(120)
    before = Run(run).round
    assert 1 <= before < 12 and not Run(run).finished
    state = office.get("/run/runs.fed/state").text
    assert "stopped" in state and 'id="resume"' in state
    assert read_command(run)[:2] == ["flower", "server"]
    assert office.post("/run/runs.fed/resume").status_code == 200
    until(lambda: Run(run).finished, 300)
    assert "finished" in office.get("/run/runs.fed/state").text
    until(lambda: "finished" in east.get(f"/run/{own}/state").text, 60)
