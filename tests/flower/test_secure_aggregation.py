"""Secure sums over a link: the same bits as in simulation, signed keys, dropouts, hostile keys."""

from __future__ import annotations

import json

import pytest
import torch

from vitrail.engine.run import start
from vitrail.engine.tasks import MissingReply
from vitrail.errors import ConfigError
from vitrail.files import read_tensors
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import compute_message_id, seal, unseal
from vitrail.flower.keys import make_keys
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.site.site_server import SiteServer
from vitrail.secure_aggregation.cohort import SiteKeys
from vitrail.secure_aggregation.key_exchange import get_public_key
from vitrail.secure_aggregation.masking import MASKED

SITES = ("east", "north", "west")
SECURE = {"release": {"secure_sum": True}}
SUBSPACES = {"dimension": 2, "depth": 8, "hidden": 8, "top": 2}
METHODS = {
    "fedavg": {},
    "scaffold": {},
    "fedgrasp": {"model": {"backbone": "small-cnn", "width": 4, "subspaces": SUBSPACES}},
    "fedgrasp by steps": {
        "method": {"name": "fedgrasp", "consensus": "tangent"},
        "model": {"backbone": "small-cnn", "width": 4, "subspaces": SUBSPACES},
    },
}


def final(run):
    return read_tensors(sorted((run / "server" / "checkpoints").glob("*"))[-1])[0]


def same(ours, theirs) -> bool:
    return set(ours) == set(theirs) and all(torch.equal(ours[n], theirs[n]) for n in theirs)


@pytest.mark.parametrize("method", METHODS)
def test_same_bits_as_the_simulation(method, birds, tmp_path) -> None:
    sections = {"method": {"name": method}, **METHODS[method], **SECURE}
    start(birds.simulated(**sections), tmp_path / "simulated")
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(**sections), tmp_path / "real", 3)
    assert same(final(tmp_path / "real"), final(tmp_path / "simulated"))


def test_noise_on_subspaces_is_shared_by_real_sites_and_their_ledgers_say_so(
    birds, tmp_path
) -> None:
    """Refuted if the model stays where it was, or a line promises more or less than the terms."""
    options = {"level": "site", "where": "distributed", "clip": 0.5, "epsilon": 8.0, "delta": 1e-3}
    sections = {
        "method": {"name": "fedgrasp", "consensus": "tangent", "personal_epochs": 0},
        "model": METHODS["fedgrasp"]["model"],
        "release": {"secure_sum": True, "defenses": ["subspace-dp"], "subspace-dp": options},
    }
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(**sections), tmp_path / "real", 3)
    checkpoints = sorted((tmp_path / "real" / "server" / "checkpoints").glob("*"))
    frames = [read_tensors(path)[0]["model/head.frames"] for path in checkpoints]
    assert not torch.equal(frames[0], frames[-1])
    for station in loop.stations.values():
        (file,) = station.config.folder.rglob("ledger.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        spent = [line for line in lines if line.get("spends")]
        assert len(spent) == 2
        assert all("the server with 0 of the sites in a sum" in x["guarantee"] for x in spent)
        assert spent[-1]["spends"][0]["epsilon"] <= 8.0 * (1 + 1e-6)


def test_no_update_is_in_any_reply(birds, tmp_path) -> None:
    """Refuted by a tensor other than the masked words, or by one that looks like a model's."""
    loop, seen = birds.loop(tmp_path), []
    for name in SITES:
        loop.spoil[name] = lambda raw, reply: seen.append(unseal(reply)) or reply
    run_federation(loop, birds.coordinator(**SECURE), tmp_path / "run", 3)
    told = [letter for letter in seen if letter.tensors]
    assert len(told) == 6
    for letter in told:
        assert set(letter.tensors) == {MASKED} and not letter.body["counts"]
        words = letter.tensors[MASKED].double()
        assert float(words.abs().median()) > 2.0**60  # of numbers near 0 it would be 2^32 or less


def vouched(birds, folder, keys) -> dict[str, SiteServer]:
    return {s: SiteServer(birds.home(s, folder), True, NodeSigner(keys.site(s))) for s in SITES}


def answer_with(raw, reply, **changes):
    """A reply to the first step of a sum whose keys are changed."""
    letter = unseal(reply)
    if letter.kind != "step" or not letter.body.get("keys"):
        return reply
    body = {**letter.body, "keys": {**letter.body["keys"], **changes}}
    return seal(letter.kind, letter.run, letter.site, body, {}, answers=compute_message_id(raw))


def swapped(raw, reply):
    """A reply whose announced key is somebody else's."""
    return answer_with(raw, reply, masking=get_public_key(bytes(range(32))))


def test_keys_are_signed_and_a_swapped_one_stops_the_sum(birds, tmp_path) -> None:
    keys = make_keys(tmp_path / "keys", SITES, ["localhost"])
    loop = birds.loop(tmp_path / "good")
    loop.stations = vouched(birds, tmp_path / "good", keys)
    plain = birds.loop(tmp_path / "plain")
    run_federation(loop, birds.coordinator(**SECURE), tmp_path / "run", 3)
    run_federation(plain, birds.coordinator(**SECURE), tmp_path / "unsigned", 3)
    assert same(final(tmp_path / "run"), final(tmp_path / "unsigned"))

    bad = birds.loop(tmp_path / "bad")
    bad.stations = vouched(birds, tmp_path / "bad", keys)
    bad.spoil["north"] = swapped
    run_federation(bad, birds.coordinator(**SECURE), tmp_path / "swapped", 3)
    log = (tmp_path / "swapped" / "log.txt").read_text()
    assert "the public key of 'north' is not signed by it" in log
    assert "round 1: void" in log


def test_a_coordinator_that_knows_the_keys_names_a_false_one_and_goes_on(birds, tmp_path) -> None:
    """It passed the false key on, all others withheld, and the log named them."""
    keys = make_keys(tmp_path / "keys", SITES, ["localhost"])
    bad = birds.loop(tmp_path / "bad")
    bad.stations = vouched(birds, tmp_path / "bad", keys)
    bad.spoil["north"] = swapped
    run_federation(bad, birds.coordinator(**SECURE), tmp_path / "run", 3, keys=keys)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "refused north: what it sent is not signed with its node key" in log
    assert "void" not in log and "refused east" not in log and "refused west" not in log


@pytest.mark.parametrize(
    "changes",
    [{"masking": "zz"}, {"masking": "0" * 64}, {"sealing": ""}, {"commitment": "x"}],
)
def test_keys_that_nobody_can_use_cost_their_site_alone(changes, birds, tmp_path) -> None:
    """Refuted by a void round. Two of three are not more than two thirds, so they try again."""
    loop = birds.loop(tmp_path)
    loop.spoil["north"] = lambda raw, reply: answer_with(raw, reply, **changes)
    run_federation(loop, birds.coordinator(**SECURE), tmp_path / "run", 3)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "void" not in log
    ledger = next(tmp_path.glob("at-east/runs/*/sites/east/ledger.jsonl"))
    told = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert {x["masked"]["sites"] for x in told if "masked" in x} == {2}


def test_a_statement_is_of_one_run_round_attempt_and_site(birds, tmp_path) -> None:
    keys = make_keys(tmp_path / "keys", SITES, ["localhost"])
    announced = SiteKeys("ab" * 32, "cd" * 32, "ef" * 32)
    signature = NodeSigner(keys.site("north")).sign(announced.statement("run", 1, 1, "north"))
    other = NodeSigner(keys.site("east"))
    assert other.accepts("north", announced.statement("run", 1, 1, "north"), signature)
    for said in (
        announced.statement("another", 1, 1, "north"),
        announced.statement("run", 2, 1, "north"),
        announced.statement("run", 1, 2, "north"),
        announced.statement("run", 1, 1, "west"),
        SiteKeys("ab" * 32, "cd" * 32, "e0" * 32).statement("run", 1, 1, "north"),
    ):
        assert not other.accepts("north", said, signature)
    assert not other.accepts("west", announced.statement("run", 1, 1, "north"), signature)


def test_a_site_that_goes_away_and_comes_back(birds, tmp_path) -> None:
    """With three sites more than two thirds is all of them: the others try once more."""
    loop = birds.loop(tmp_path)
    loop.spoil["north"] = lambda raw, reply: (
        MissingReply("it was too late")
        if unseal(raw).kind == "turn" and unseal(raw).body["task"]["round"] == 2
        else reply
    )
    terms = {**SECURE, "run": {"rounds": 3, "batch_size": 8, "seed": 5}}
    run_federation(loop, birds.coordinator(**terms), tmp_path / "run", 3)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "round 2: without north: it was too late" in log and "void" not in log
    ledger = next(tmp_path.glob("at-east/runs/*/sites/east/ledger.jsonl"))
    told = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [x["masked"]["sites"] for x in told if "masked" in x] == [3, 3, 2, 3]


@pytest.mark.parametrize("at", range(3, 13))
def test_a_coordinator_killed_at_any_exchange_goes_on_with_the_same_bits(
    at, birds, tmp_path
) -> None:
    """Hello and start, then five exchanges a round: killed after each, resumed, the same bits."""

    class Killed(BaseException):
        pass

    whole, broken = birds.loop(tmp_path / "a"), birds.loop(tmp_path / "b")
    run_federation(whole, birds.coordinator(**SECURE), tmp_path / "whole", 3)
    ask, asked = broken.ask, []

    def dies(sites, make_message, patience):
        answers = list(ask(sites, make_message, patience))
        asked.append(sites)
        if len(asked) == at:
            raise Killed
        return iter(answers)

    broken.ask = dies
    with pytest.raises(Killed):
        run_federation(broken, birds.coordinator(**SECURE), tmp_path / "run", 3)
    broken.ask = ask
    run_federation(broken, birds.coordinator(**SECURE), tmp_path / "run", 3)
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))


def test_a_federation_of_one_is_refused_before_anybody_is_asked(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)
    with pytest.raises(ConfigError, match="sum of one site"):
        run_federation(loop, birds.coordinator(**SECURE), tmp_path / "run", 1)
    assert not loop.asked and not (tmp_path / "run").exists()
