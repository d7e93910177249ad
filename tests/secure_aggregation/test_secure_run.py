"""Secure sums in a run: the server learns the sum, and the run learns the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import vitrail
from vitrail.config import parse
from vitrail.engine.plan import make_plan
from vitrail.engine.storage.transcript import Recording
from vitrail.engine.tasks import MissingReply, Task
from vitrail.engine.workers.pool import InProcessPool
from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors
from vitrail.runs.ledgers import read_ledgers
from vitrail.secure_aggregation import site as masking
from vitrail.secure_aggregation.masking import MASKED, MASKED_GUARANTEE
from vitrail.secure_aggregation.round_state import StateFile
from vitrail.secure_aggregation.secure_sum import ALL_SITES, lift_update
from vitrail.secure_aggregation.site_steps import SiteSteps
from vitrail.secure_aggregation.steps import KeyRequest

pytest.importorskip("cryptography")
SECURE = {"secure_sum": True}
SUBSPACES = {"subspaces": {"dimension": 2, "depth": 8, "hidden": 8, "top": 2}}
METHODS = {
    "fedavg": {},
    "scaffold": {},
    "feddyn": {},
    "fednova": {},
    "fedgrasp": {"model": {"backbone": "small-cnn", "width": 4, **SUBSPACES}},
    "fedproto": {},
    "fedgrasp by steps": {
        "method": {"name": "fedgrasp", "consensus": "tangent"},
        "model": {"backbone": "small-cnn", "width": 4, **SUBSPACES},
    },
    "fedgrasp by class": {
        "method": {"name": "fedgrasp", "weights": "class-counts"},
        "model": {"backbone": "small-cnn", "width": 4, **SUBSPACES},
    },
}


@pytest.fixture
def tiny(tiny):
    """Four sites with a smaller network."""
    small = {"backbone": "small-cnn", "width": 4}
    return lambda out="run", **changes: tiny(out, **{"model": small, **changes})


def final(run):
    return read_tensors(sorted((run.path / "server" / "checkpoints").glob("*"))[-1])[0]


def lines(run, site):
    raw = (run.path / "sites" / site / "ledger.jsonl").read_text().splitlines()
    return [json.loads(line) for line in raw]


@pytest.mark.parametrize("method", METHODS)
def test_one_round_is_that_of_the_plain_sum_within_the_fixed_point_error(method, tiny) -> None:
    """Refuted by any number further off than the rounding of every site, in float32."""
    sections = {"method": {"name": method}, **METHODS[method], "run": {"rounds": 1}}
    sections["run"] |= {"local_reference": False}
    plain, secure = tiny("plain", **sections), tiny("secure", release=SECURE, **sections)
    ours, theirs = final(secure), final(plain)
    for name, tensor in ours.items():
        if "/distance" in name:
            continue
        away = (tensor.double() - theirs[name].double()).abs()
        assert torch.all(away <= 1e-6 * (1 + theirs[name].abs())), name
    missing = set(theirs) - set(ours)
    assert all("/distance" in name for name in missing)  # of a site's own subspace, unseen


def test_several_rounds_stay_close_to_the_plain_run(tiny) -> None:
    """Rounding differs in the last bit of float32, and training carries that on."""
    sections = {"method": {"name": "scaffold"}, "run": {"rounds": 3}}
    plain, secure = tiny("plain", **sections), tiny("secure", release=SECURE, **sections)
    for name, tensor in final(secure).items():
        assert torch.allclose(tensor, final(plain)[name], rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("method", ["scaffold", "fedgrasp"])
def test_same_bits_for_one_and_two_workers(method, tiny, same_bits) -> None:
    sections = {"method": {"name": method}, **METHODS[method], "release": SECURE}
    one = tiny("one", **sections, run={"rounds": 2, "dropout": 0.3})
    two = tiny("two", **sections, run={"rounds": 2, "dropout": 0.3, "workers": 2})
    assert same_bits(one.path, two.path)


def asked(monkeypatch, change) -> list[Task]:
    """Every task of a run; `change(task, reply)` is what comes of it."""
    tasks: list[Task] = []
    turns = InProcessPool.turns

    def spied(self, given, down):
        for task, reply in zip(given, turns(self, given, down), strict=True):
            tasks.append(task)
            yield change(task, reply)

    monkeypatch.setattr(InProcessPool, "turns", spied)
    return tasks


def test_a_dropout_is_recovered_within_the_round(tiny, monkeypatch) -> None:
    """The round is that of a plain run without the site; refuted if its update is in it, or if
    the others are asked again."""
    sections = {"run": {"rounds": 2}}

    def away(task, reply):
        lost = task.site == "site-01" and task.round == 2
        return MissingReply("it went away") if lost else reply

    tasks = asked(monkeypatch, away)
    plain = tiny("plain", **sections)
    del tasks[:]
    secure = tiny("secure", **sections, release=SECURE)
    attempts = [(t.round, t.masks.attempt) for t in tasks if t.masks and t.site == "site-02"]
    assert attempts == [(1, 1), (2, 1)]
    for name, tensor in final(secure).items():
        assert torch.allclose(tensor, final(plain)[name], rtol=1e-4, atol=1e-5), name
    told = [x for x in lines(secure, "site-02") if x.get("round") == 2]
    assert [x["kind"] for x in told] == ["release"] and told[0]["masked"]["sites"] == 4
    assert "round 2: without site-01: it went away" in (secure.path / "log.txt").read_text()
    assert read_ledgers(secure.path).mismatches == []


def test_one_of_three_lost_costs_an_attempt_and_no_training(tiny, monkeypatch) -> None:
    from vitrail.local.phases.phase import Fit

    counted: dict[str, int] = {}
    fit = Fit.__call__

    def count(self, site, ctx):
        counted[site.name] = counted.get(site.name, 0) + 1
        return fit(self, site, ctx)

    monkeypatch.setattr(Fit, "__call__", count)
    lost = ("site-00",)
    tasks = asked(monkeypatch, lambda t, r: MissingReply("away") if t.site in lost else r)
    run = tiny(release=SECURE, run={"rounds": 1}, partition={"sites": 3})
    assert max(t.masks.attempt for t in tasks if t.masks) == 2
    assert not any(t.site in lost and t.masks.attempt == 2 for t in tasks if t.masks)
    assert set(counted.values()) == {1}
    told = [x for x in lines(run, "site-02") if x.get("round") == 1]
    assert [x["kind"] for x in told] == ["release", "repeat"]
    assert told[0]["masked"]["id"] != told[1]["masked"]["id"]
    assert [x["masked"]["sites"] for x in told] == [3, 2]


def test_attempts_are_bounded_then_the_round_is_void(tiny, monkeypatch) -> None:
    """Too many are lost in each attempt; nothing changes, the run goes on."""

    def fading(task, reply):
        if task.masks is None or task.round != 1:
            return reply
        return reply if task.site == "site-03" else MissingReply("away")

    tasks = asked(monkeypatch, fading)
    run = tiny(release=SECURE, run={"rounds": 2})
    log = (run.path / "log.txt").read_text()
    assert "round 1: void" in log and "round 2: void" not in log
    assert "1 sites sent their masked updates, and 3 must stay" in log or "announced keys" in log
    assert max(t.masks.attempt for t in tasks if t.masks and t.round == 1) <= 3


def test_a_site_checks_itself_and_says_why_it_sends_nothing(tiny, monkeypatch) -> None:
    def broken(update, *rest):
        found = lift_update(update, *rest)
        return found * float("nan") if update.site == "site-01" else found

    monkeypatch.setattr(masking, "lift_update", broken)
    run = tiny(release=SECURE, run={"rounds": 1})
    assert (
        "refused site-01: the update does not fit a secure sum"
        in (run.path / "log.txt").read_text()
    )
    assert [x["kind"] for x in lines(run, "site-01") if x.get("round") == 1] == []
    assert len([x for x in lines(run, "site-02") if x.get("round") == 1]) == 1


def test_masks_that_do_not_cancel_are_seen_and_the_model_stays(tiny, monkeypatch) -> None:
    def changed(task, reply):
        if task.masks is not None and task.site == "site-01" and task.round == 2:
            reply.update.tensors[MASKED].add_(1)
        return reply

    asked(monkeypatch, changed)
    one = tiny("one", release=SECURE, run={"rounds": 1})
    two = tiny("two", release=SECURE, run={"rounds": 2})
    log = (two.path / "log.txt").read_text()
    assert f"round 2: refused {ALL_SITES}: the masks did not cancel" in log
    model = {n: t for n, t in final(two).items() if n.startswith("model/")}
    assert all(torch.equal(t, final(one)[n]) for n, t in model.items())


@pytest.mark.parametrize("at", [1, 6, 9])
def test_resumed_after_a_kill_it_ends_with_the_same_bits(at, tiny, monkeypatch, same_bits) -> None:
    """Killed after some turns, in a first and in a repeated attempt."""
    sections = {"method": {"name": "scaffold"}, "release": SECURE}
    sections["run"] = {"rounds": 3, "dropout": 0.3, "seed": 8}
    whole = tiny("whole", **sections)

    class Killed(BaseException):
        pass

    done = []

    def dies(task, reply):
        done.append(task)
        if len(done) == at:
            raise Killed
        return reply

    with monkeypatch.context() as patch:
        asked(patch, dies)
        with pytest.raises(Killed):
            tiny("killed", **sections)
    killed = vitrail.resume(whole.path.parent / "killed")
    assert same_bits(whole.path, killed.path)
    for site in ("site-00", "site-01"):
        kinds = [(x["kind"], x.get("round"), x.get("message")) for x in lines(killed, site)]
        assert len([k for k in kinds if k[0] == "release"]) == len(
            {k for k in kinds if k[0] == "release"}
        )


def test_a_site_is_not_asked_for_more_than_the_terms_say(tiny, monkeypatch) -> None:
    """Neither an update without masks in a secure run, nor endless attempts at one round."""
    hosts = []
    turns = InProcessPool.turns

    def spied(self, given, down):
        hosts.append((self.host, given[0], down))
        yield from turns(self, given, down)

    monkeypatch.setattr(InProcessPool, "turns", spied)
    tiny(release=SECURE, run={"rounds": 1})
    host, task, down = hosts[0]
    with pytest.raises(RunError, match="without masks"):
        host.turn(replace(task, masks=None), down)
    again = host.turn(task, down)  # the run is over, and so are its keys
    assert again.withheld and not again.update.tensors
    told = [host.exchange(KeyRequest(task.site, 1, n, down.digest)) for n in (1, 2, 3, 4)]
    assert all(answer.withheld and answer.keys is None for answer in told)  # see the next test


def test_the_closing_turn_opens_no_round_again(tiny) -> None:
    """It deleted what said that a sum was unmasked: a second sum without one site told that
    site's update. The held update is gone as well."""
    run = tiny(release=SECURE, run={"rounds": 2})
    assert not list(run.path.glob("sites/*/held.safetensors"))
    for file in run.path.glob("sites/*/secure-sum.json"):
        state = StateFile(file.parent).load()
        assert state is not None and state.unmasked and state.round == 2
        steps = SiteSteps(file.parent.name, "", StateFile(file.parent), None)
        for round_, attempt in ((1, 1), (2, 1), (2, 2), (2, 3), (2, 4)):
            answer = steps.answer(KeyRequest(file.parent.name, round_, attempt, "any"))
            assert answer.withheld and answer.keys is None


def test_a_round_asked_again_after_the_data_changed_tells_no_difference(tiny, monkeypatch) -> None:
    """Images are blackened and the round replayed. With keys that follow from the site's secret
    the two masked messages differed by the true change of the update, in clear."""
    turns, seen = InProcessPool.turns, []

    def replay(self, given, down):
        for task, reply in zip(given, turns(self, given, down), strict=True):
            if not seen and task.masks:
                folder, host = self.host.folder / "sites" / task.site, self.host
                before = host.inputs
                images = before.images.copy()
                images[host.sites[task.site].train] = 0
                host.inputs = replace(before, images=images)
                kept = {f: f.read_bytes() for f in folder.iterdir() if f.is_file()}
                again = host.turn(task, down)  # as a restarted coordinator asks: the stored answer
                assert torch.equal(again.update.tensors[MASKED], reply.update.tensors[MASKED])
                (folder / "held.safetensors").unlink()
                other = host.turn(task, down)  # trained anew on other images, the same attempt
                assert "another update was masked" in other.withheld and not other.update.tensors
                for file, raw in kept.items():
                    file.write_bytes(raw)
                host.inputs = before
                seen.append(task)
            yield reply

    monkeypatch.setattr(InProcessPool, "turns", replay)
    run = tiny(release=SECURE, run={"rounds": 1})
    assert seen and "void" not in (run.path / "log.txt").read_text()


def test_no_private_key_of_a_sum_outlives_the_run(tiny) -> None:
    run = tiny(release=SECURE, run={"rounds": 2})
    states = [StateFile(f.parent).load() for f in run.path.glob("sites/*/secure-sum.json")]
    assert states and all(not (s.sealing or s.masking or s.seed or s.own_share) for s in states)


def test_counts_stay_home_and_the_ledger_says_what_is_masked(tiny, monkeypatch) -> None:
    replies = []
    asked(monkeypatch, lambda task, reply: replies.append((task, reply)) or reply)
    run = tiny(release=SECURE, run={"rounds": 1})
    update = next(reply.update for task, reply in replies if task.masks)
    assert set(update.tensors) == {MASKED} and update.tensors[MASKED].dtype == torch.int64
    assert not update.counts
    told = next(x for x in lines(run, "site-01") if x["kind"] == "release")
    assert told["masked"]["says"] == MASKED_GUARANTEE and told["counts"] == {}
    assert told["bytes"] == update.bytes and "loss" in told["metrics"]
    assert read_ledgers(run.path).mismatches == []
    assert "masked: the server sees the sum only" in (run.path / "log.txt").read_text()


REFUSED = {
    "robust rule": ({"aggregate": {"rule": "median"}}, "must see every site's update"),
    "krum": ({"aggregate": {"rule": "krum"}}, "must see every site's update"),
    "kept": ({"method": {"name": "fedxds"}}, "kept site by site"),
    "one site": ({"run": {"participation": 0.1}}, "sum of one site"),
    "nothing shared": ({"method": {"name": "local"}}, "nothing is added up"),
    "pooled": ({"method": {"name": "centralized"}}, "nothing is added up"),
    "karcher": (
        {"method": {"name": "fedgrasp", "consensus": "karcher"}, **METHODS["fedgrasp"]},
        "must see every site's update",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_sum_is_refused_before_the_run(case, tiny, tmp_path) -> None:
    sections, said = REFUSED[case]
    with pytest.raises(ConfigError, match=said):
        tiny(release=SECURE, **sections)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("where", ["site", "sum"])
def test_client_privacy_and_secure_sums_go_together(where, tiny) -> None:
    """Noise at the site is in what is masked; noise in the sum is added to what comes out, and
    follows from it: a sum that is rounded otherwise has other noise."""
    options = {"epsilon": 8.0, "clip": 1.0, "where": where}
    sections = {"release": {"defenses": ["client-dp"], "client-dp": options}, "run": {"rounds": 1}}
    plain = tiny("plain", **sections)
    secure = tiny("secure", **{**sections, "release": {**sections["release"], **SECURE}})
    same = [
        torch.allclose(tensor, final(plain)[name], rtol=1e-5, atol=1e-6)
        for name, tensor in final(secure).items()
        if name.startswith("model/") and tensor.is_floating_point()
    ]
    assert all(same) if where == "site" else not all(same)
    told = next(x for x in lines(secure, "site-01") if x["kind"] == "release")
    assert told["guarantee"].startswith("formal") and told["metrics"] == []


def test_the_transcript_has_the_sum_and_no_site(tiny, command) -> None:
    run = tiny(release=SECURE, run={"rounds": 1, "record_updates": True})
    recording = Recording(run.path / "server")
    assert recording.sites(1) == (ALL_SITES,)
    model = {n: t for n, t in final(run).items() if n.startswith("model/")}
    told = recording.read_received(1, ALL_SITES).update.tensors
    assert told and all(torch.equal(t, model[n]) for n, t in told.items())
    for words, said in ((["--site", "site-01"], "never saw the update of one site"),):
        code, _, err = command("attack", run.path, *words)
        assert code != 0 and said in err
    code, out, err = command("attack", run.path, "--iterations", "2", "--images", "1")
    assert code == 0 and "only the sum of all updates" in out + err


def test_subspaces_travel_as_half_a_projector_each(tiny_config) -> None:
    """n (n + 1) / 2 numbers a class for the sum of projectors, and its weight."""
    sections = {"method": {"name": "fedgrasp"}, **METHODS["fedgrasp"], "release": SECURE}
    plan, _ = make_plan(parse(tiny_config(**sections)), ("a", "b", "c"), 3)
    stage = plan.stages[0]
    frames = [f for f in stage.schema.up if f.geometry == "grassmann"]
    rest = sum(f.bytes // 4 for f in stage.schema.up if f not in frames)
    n = frames[0].shape[-2]
    assert stage.masked.up[0].shape == (rest + 3 * n * (n + 1) // 2 + 3 + 1,)
