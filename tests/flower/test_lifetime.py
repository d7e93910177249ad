"""The lifetime ledger of a real site: what runs spend adds up, and cannot be spent uncounted."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.errors import RunError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.run_terms import make_terms, resolve_terms
from vitrail.flower.site import site_server
from vitrail.flower.site.lifetime_ledger import LifetimeLedger
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import SiteServer
from vitrail.flower.versions import list_versions
from vitrail.release.accounting.accountant import Event, compute_epsilon

from .conftest import SITES, Loop

NOISE = 60.0
PRIVATE = {"defenses": ["dp-sgd"], "dp-sgd": {"noise": NOISE, "delta": 1e-3}}
DELTA = 1e-5


def play(birds, homes, out, release=PRIVATE, configs=None):
    """A run with sites that have secrets of their own."""
    configs = configs or {s: birds.home(s, homes) for s in SITES}
    loop = Loop({s: SiteServer(configs[s]) for s in SITES})
    more = {"release": release} if release else {}
    loaded = birds.coordinator(model={**birds.terms["model"], "norm": "group"}, **more)
    run_federation(loop, loaded, out, len(SITES), patience=1.0)
    return configs


def spend_on(config):
    return [share.spending.compute_epsilon(DELTA) for share in LifetimeLedger(config).list_shares()]


def test_two_runs_spend_more_than_one_and_a_planned_one_is_forecast(birds, tmp_path):
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    (one,) = spend_on(configs["east"])
    runs = LifetimeLedger(configs["east"]).list_runs()
    count = len(runs[0].keys)
    steps = 2 * -(-count // 8)
    assert one == pytest.approx(compute_epsilon([Event(NOISE, 8 / count, steps)], DELTA), rel=1e-6)
    assert runs[0].over
    play(birds, tmp_path / "homes", tmp_path / "two")
    (two,) = spend_on(configs["east"])
    both = [Event(NOISE, 8 / count, 2 * steps)]
    assert two == pytest.approx(compute_epsilon(both, DELTA), rel=1e-6) and two > one
    result = CliRunner().invoke(
        app, ["budget", str(configs["east"].file), "--json", str(tmp_path / "b.json")]
    )
    assert result.exit_code == 0 and f"{two:.4g}" in result.output
    (line,) = json.loads((tmp_path / "b.json").read_text())["shares"]
    assert line["images"] == count and len(line["runs"].split(", ")) == 2


def test_a_run_without_a_proof_leaves_no_bound(birds, tmp_path):
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    play(birds, tmp_path / "homes", tmp_path / "two", release=None)
    assert set(spend_on(configs["east"])) == {float("inf")}
    assert "no bound" in CliRunner().invoke(app, ["budget", str(configs["east"].file)]).output


def tighten(config, most):
    config.file.write_text(
        config.file.read_text() + f"[policy]\nlifetime_epsilon = {most}\nlifetime_delta = {DELTA}\n"
    )
    opened = SiteConfig.open(config.file)
    object.__setattr__(opened, "wait", lambda run, terms, lines, patience: True)
    return opened


def test_terms_that_would_pass_the_lifetime_budget_are_refused_and_tell_no_number(birds, tmp_path):
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    (one,) = spend_on(configs["east"])
    configs["east"] = tighten(configs["east"], 1.1 * one)
    with pytest.raises(RunError) as refused:
        play(birds, tmp_path / "homes", tmp_path / "two", configs=configs)
    assert "lifetime_epsilon" in str(refused.value) and "east" in str(refused.value)
    assert f"{one:.2g}" not in str(refused.value)
    log = "".join(p.read_text() for p in configs["east"].folder.rglob("log*"))
    assert f"{0.1 * one:.4g} is left" in log
    assert len(LifetimeLedger(configs["east"]).list_runs()) == 1


def test_a_ledger_that_was_rolled_back_or_changed_is_refused(birds, tmp_path):
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    ledger = LifetimeLedger(configs["east"])
    before = ledger.ledger.path.read_bytes()
    play(birds, tmp_path / "homes", tmp_path / "two")
    after = ledger.ledger.path.read_bytes()
    for content in (before, b"", after.replace(b'"bounded":true', b'"bounded":true ', 1)):
        ledger.ledger.path.write_bytes(content)
        with pytest.raises(RunError, match="cannot be trusted"):
            ledger.list_runs()
    ledger.ledger.path.unlink()
    with pytest.raises(RunError, match="does not know the run"):
        ledger.list_runs()
    ledger.ledger.path.write_bytes(after)
    assert len(ledger.list_runs()) == 2


def test_a_run_whose_folder_is_gone_counts_in_full(birds, tmp_path):
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    (one,) = spend_on(configs["east"])
    shutil.rmtree(configs["east"].folder / "runs")
    assert spend_on(configs["east"]) == [one]
    play(birds, tmp_path / "homes", tmp_path / "again" / "one")
    (two,) = spend_on(configs["east"])
    assert two > one  # the name of a run buys nothing


def test_a_data_set_under_another_name_has_the_same_images(birds, tmp_path):
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    copy = tmp_path / "copy"
    shutil.copytree(birds.root, copy)
    moved = {s: configs[s] for s in SITES}
    east = moved["east"]
    east.file.write_text(east.file.read_text().replace(str(birds.root), str(copy)))
    opened = SiteConfig.open(east.file)
    object.__setattr__(opened, "wait", lambda run, terms, lines, patience: True)
    play(birds, tmp_path / "homes", tmp_path / "two", configs={**moved, "east": opened})
    (share,) = LifetimeLedger(opened).list_shares()
    assert len(share.runs) == 2


def test_a_closing_turn_out_of_turn_does_not_make_a_run_free(birds, tmp_path):
    """Closed before its first round, a run was written down as having spent nothing, and its
    rounds were answered all the same."""
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(), tmp_path / "run", 3)
    turn = next(raw for s, raw in loop.asked if s == "north" and unseal(raw).kind == "turn")
    answer = unseal(loop.stations["north"].answer(turn))
    assert answer.kind != "turn" and "closing turn" in answer.body["sentence"]


class Killed(BaseException):
    """What no handler catches."""


def test_images_that_come_after_a_kill_before_the_pins_are_counted(birds, tmp_path, monkeypatch):
    """The first hello counted the images that were there, and was killed before it pinned them."""
    config = birds.home("east", tmp_path)
    table = tmp_path / "some.csv"
    head, *rows = (birds.root / "east.csv").read_text().splitlines()
    table.write_text("\n".join([head, *(f"{birds.root}/{row}" for row in rows[:-6])]) + "\n")
    config.file.write_text(
        config.file.read_text().replace(str(birds.root / "east.csv"), str(table))
    )

    def open_again() -> SiteServer:
        opened = SiteConfig.open(config.file)
        object.__setattr__(opened, "wait", lambda run, terms, lines, patience: True)
        return SiteServer(opened)

    def kill(*_: object) -> None:
        raise Killed

    loaded = birds.coordinator(model={**birds.terms["model"], "norm": "group"}, release=PRIVATE)
    hello = seal(
        "hello",
        "abc",
        "east",
        {"terms": make_terms(resolve_terms(loaded).config), "versions": list_versions("torch")},
    )
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(site_server, "write_pins", kill)
        open_again().answer(hello)
    (before,) = LifetimeLedger(config).list_runs()
    table.write_text("\n".join([head, *(f"{birds.root}/{row}" for row in rows)]) + "\n")
    server = open_again()
    assert unseal(server.answer(hello)).kind == "hello"
    train = len(server._current[1].federation.sites["east"].train)
    counted, _ = LifetimeLedger(config).count_images("abc")
    assert before.keys.total() < train == counted.total()
    assert unseal(open_again().answer(hello)).kind == "hello"  # pinned now: nothing is added
    assert len(LifetimeLedger(config).list_runs()) == 2
