"""A site that dies, hangs or returns rubbish costs its own contribution and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from vitrail.engine.tasks import MissingReply
from vitrail.errors import RunError
from vitrail.files import read_tensors
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import compute_message_id, seal, unseal
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import SiteServer
from vitrail.runs.opened_run import Run
from vitrail.wire import WireError


def final(run):
    return read_tensors(sorted((run / "server" / "checkpoints").glob("*"))[-1])[0]


def log(run) -> str:
    return (run / "log.txt").read_text()


def forged(raw, reply, **changes):
    """A well-formed reply whose content is wrong."""
    letter = unseal(reply)
    body, tensors = changes.get("body", letter.body), changes.get("tensors", letter.tensors)
    return seal(
        letter.kind, letter.run, letter.site, body, tensors, answers=compute_message_id(raw)
    )


def poisoned(raw, reply):
    letter = unseal(reply)
    if not letter.tensors:
        return reply
    return forged(raw, reply, tensors={n: t * float("nan") for n, t in letter.tensors.items()})


def reshaped(raw, reply):
    letter = unseal(reply)
    if not letter.tensors:
        return reply
    return forged(raw, reply, tensors={n: t.reshape(-1)[:1] for n, t in letter.tensors.items()})


def of_another_round(raw, reply):
    letter = unseal(reply)
    return forged(raw, reply, body={**letter.body, "round": 7}) if letter.tensors else reply


def flipped(raw, reply):
    changed = bytearray(reply)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


def swollen(raw, reply):
    letter = unseal(reply)
    return forged(raw, reply, tensors={**letter.tensors, "model/x": torch.zeros(3_000_000)})


SPOILS = {
    "NaN": (poisoned, "not finite"),
    "shapes": (reshaped, "has shape"),
    "another round": (of_another_round, "round 7"),
    "a flipped bit": (flipped, "digest does not match"),
    "far too much": (swollen, "over the limit"),
    "silence": (lambda raw, reply: MissingReply("it was too late"), "it was too late"),
    "rubbish": (lambda raw, reply: b"hello", "cut off"),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_rubbish_of_one_site_leaves_the_run_as_without_it(spoil, birds, tmp_path) -> None:
    change, said = SPOILS[spoil]
    away, bad = birds.loop(tmp_path / "a"), birds.loop(tmp_path / "b")

    def begun(loop, then):
        """The first answers (hello) are good; then the fault sets in."""
        calls = []

        def spoiled(raw, reply):
            calls.append(raw)
            return reply if len(calls) == 1 else then(raw, reply)

        loop.spoil["north"] = spoiled
        return loop

    run_federation(
        begun(away, lambda raw, reply: MissingReply("away")),
        birds.coordinator(),
        tmp_path / "away",
        3,
    )
    run_federation(begun(bad, change), birds.coordinator(), tmp_path / "bad", 3)
    ours, theirs = final(tmp_path / "bad"), final(tmp_path / "away")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert said in log(tmp_path / "bad")


def test_a_replayed_reply_is_refused(birds, tmp_path) -> None:
    loop, kept = birds.loop(tmp_path), []

    def replay(raw, reply):
        kept.append(reply)
        return kept[1] if len(kept) > 2 else reply

    loop.spoil["west"] = replay
    run_federation(loop, birds.coordinator(), tmp_path / "run", 3)
    assert "refused a message of west: it answers another message" in log(tmp_path / "run")


def test_a_site_cannot_answer_for_another(birds, tmp_path) -> None:
    loop, kept = birds.loop(tmp_path), {}
    loop.spoil["east"] = lambda raw, reply: kept.setdefault(len(loop.asked), reply)
    loop.spoil["north"] = lambda raw, reply: list(kept.values())[-1] if len(kept) > 1 else reply
    run_federation(loop, birds.coordinator(), tmp_path / "run", 3)
    assert "refused a message of north" in log(tmp_path / "run")


def test_a_site_that_comes_back_takes_part_again(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)

    def on_round(p) -> None:
        loop.down = {"north"} if p.round == 1 else set()

    config = birds.coordinator(run={"rounds": 3, "batch_size": 8, "seed": 5})
    run_federation(loop, config, tmp_path / "run", 3, on_round=on_round)
    rows = {(r["round"], r["site"]) for r in Run(tmp_path / "run").rows() if r.get("steps")}
    assert {(1, "north"), (3, "north")} <= rows and (2, "north") not in rows
    assert "round 2: without north: it is not connected" in log(tmp_path / "run")


class Killed(BaseException):
    """Stands for a SIGKILL of the coordinator."""


def test_a_coordinator_killed_in_mid_round_goes_on_with_the_same_bits(birds, tmp_path) -> None:
    whole, broken = birds.loop(tmp_path / "a"), birds.loop(tmp_path / "b")
    run_federation(whole, birds.coordinator(method={"name": "scaffold"}), tmp_path / "whole", 3)
    ask, turns = broken.ask, []

    def dies(sites, make_message, patience):
        answers = list(ask(sites, make_message, patience))
        turns.append(sites)
        if len(turns) == 3:  # hello, round 1, round 2: everybody has answered, nobody hears it
            raise Killed
        return iter(answers)

    broken.ask = dies
    with pytest.raises(Killed):
        run_federation(broken, birds.coordinator(method={"name": "scaffold"}), tmp_path / "run", 3)
    broken.ask = ask
    run_federation(broken, birds.coordinator(), tmp_path / "run", 3)
    ours, theirs = final(tmp_path / "run"), final(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    ledger = next((tmp_path / "b").glob("at-north/runs/*/sites/north/ledger.jsonl"))
    releases = [json.loads(x) for x in ledger.read_text().splitlines()]
    rounds = [x["round"] for x in releases if x["kind"] == "release"]
    assert rounds == sorted(set(rounds))  # what left twice with the same bits is one release


def test_an_operator_who_says_no_ends_it(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)
    loop.stations["west"] = SiteServer(birds.home("west", tmp_path, yes=False), seeded=True)
    with pytest.raises(RunError, match=r"west.*not agreed"):
        run_federation(loop, birds.coordinator(), tmp_path / "run", 3, patience=0.0)
    assert not list((tmp_path / "at-west").glob("runs/*/sites/west/ledger.jsonl"))


def test_terms_changed_after_the_fact_are_refused(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(), tmp_path / "run", 3)
    hello = next(raw for name, raw in loop.asked if name == "north")
    letter = unseal(hello)
    letter.body["terms"]["release"] = {"defenses": ["none"]}
    answer = unseal(loop.stations["north"].answer(seal("hello", letter.run, "north", letter.body)))
    assert answer.kind == "error" and "other terms" in answer.body["sentence"]


def test_no_message_names_a_path(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)
    config = birds.coordinator()
    data = config.config.data.model_copy(update={"path": str(birds.root / "secret-place")})
    config = replace(config, config=config.config.model_copy(update={"data": data}))
    run_federation(loop, config, tmp_path / "run", 3)
    both_ways = [*(raw for _, raw in loop.asked), *loop.heard]
    assert len(loop.heard) == len(loop.asked) > 0
    for place in (b"secret-place", bytes(birds.root), bytes(tmp_path)):
        assert not any(place in raw for raw in both_ways)


def test_a_message_cannot_tell_a_site_where_to_read_or_what_code_to_load(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(), tmp_path / "run", 3)
    letter = unseal(loop.asked[0][1])
    for section, key, value in (
        ("data", "path", "/etc"),
        ("run", "plugins", ["evil.py"]),
        ("run", "device", "cuda"),
    ):
        terms = json.loads(json.dumps(letter.body["terms"]))
        terms[section][key] = value
        raw = seal("hello", "another", letter.site, {**letter.body, "terms": terms})
        answer = unseal(loop.stations[letter.site].answer(raw))
        assert answer.kind == "error" and "do not go together" in answer.body["sentence"]
        log = (loop.stations[letter.site].config.folder / "log.txt").read_text()
        assert f"the coordinator's terms say {key!r}" in log


def test_an_unknown_label_is_refused_and_a_missing_class_reported(birds, tmp_path) -> None:
    rows = (birds.root / "north.csv").read_text().splitlines()
    classes = birds.terms["data"]["classes"]
    lacking = [rows[0]] + [r for r in rows[1:] if classes[0] not in r]
    loop = birds.loop(tmp_path)
    home = loop.stations["north"].config
    (tmp_path / "few.csv").write_text("\n".join(lacking))
    for name in {r.split(",")[0] for r in lacking[1:]}:
        (tmp_path / name).write_bytes((birds.root / name).read_bytes())
    object.__setattr__(home, "data", {**home.data, "path": str(tmp_path / "few.csv")})
    run_federation(loop, birds.coordinator(), tmp_path / "run", 3)
    assert f"site north has no image of: {classes[0]}" in log(tmp_path / "run")
    object.__setattr__(home, "data", {**home.data, "rename": {classes[1]: "dodo"}})
    with pytest.raises(RunError, match=r"north.*labels cannot be used") as refused:
        run_federation(loop, birds.coordinator(), tmp_path / "other", 3)
    assert "dodo" not in str(refused.value)  # what a site calls its classes is its own to know
    assert not any(b"dodo" in raw for raw in loop.heard)
    assert "dodo" in (home.folder / "log.txt").read_text()


def test_real_draws_come_from_the_sites_own_secret(birds, tmp_path) -> None:
    """Refuted if a coordinator who knows the seed could compute what a site draws."""
    seeded, real = birds.loop(tmp_path / "a"), birds.loop(tmp_path / "b")
    for name, station in real.stations.items():
        real.stations[name] = SiteServer(station.config)
    run_federation(seeded, birds.coordinator(), tmp_path / "seeded", 3)
    run_federation(real, birds.coordinator(), tmp_path / "real", 3)
    ours, theirs = final(tmp_path / "real"), final(tmp_path / "seeded")
    assert any(not torch.equal(ours[name], theirs[name]) for name in theirs)
    secret = tmp_path / "b" / "at-north" / "secret"
    assert secret.stat().st_mode & 0o077 == 0
    both_ways = [*(raw for _, raw in real.asked), *real.heard]
    assert not any(secret.read_bytes() in raw for raw in both_ways)
    assert not any(secret.read_bytes().hex().encode() in raw for raw in both_ways)


def test_mutated_messages_are_refused_and_nothing_else_happens(birds, tmp_path) -> None:
    """The codec's own test changes more of them; here the answers are looked at too."""
    station = SiteServer(birds.home("north", tmp_path), seeded=True)
    raw = seal("turn", "run", "north", {"task": {}}, {"model/x": torch.arange(4.0)})
    generator = torch.Generator().manual_seed(3)
    for _ in range(300):
        changed = bytearray(raw)
        at = int(torch.randint(len(raw), (1,), generator=generator))
        changed[at] ^= 1 + int(torch.randint(255, (1,), generator=generator))
        with pytest.raises(WireError):
            unseal(bytes(changed))
        assert unseal(station.answer(bytes(changed))).kind == "error"


def test_hostile_but_well_formed_messages_get_a_sentence(birds, tmp_path) -> None:
    station = SiteServer(birds.home("north", tmp_path), seeded=True)
    for kind, site, body in (
        ("turn", "north", {}),
        ("turn", "north", {"task": 3}),
        ("hello", "north", {"terms": []}),
        ("hello", "north", {"terms": {"data": {}}}),
        ("shell", "north", {"command": "rm"}),
        ("farewell", "north", {"tables": 1}),
        ("hello", "south", {}),
    ):
        answer = unseal(station.answer(seal(kind, "../../x", site, body)))
        assert answer.kind == "error" and answer.body["sentence"]
    assert not (tmp_path.parent / "x").exists()


def test_a_damaged_secret_is_said(birds, tmp_path) -> None:
    home = birds.home("north", tmp_path)
    home.secret()
    (home.folder / "secret").write_bytes(b"short")
    with pytest.raises(RunError, match="secret is damaged"):
        SiteConfig.open(home.file).secret()
