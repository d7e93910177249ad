"""A site answers each round once, whatever the order, by one process, and no folder runs code."""

from __future__ import annotations

import shutil

import pytest

import vitrail
from vitrail.errors import ConfigError, RunError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.site.limits import SiteLimits
from vitrail.release.ledger import Ledger


def release(round_: int, message: str) -> dict[str, object]:
    return {"kind": "release", "round": round_, "message": message, "bytes": 1}


def test_rounds_in_any_order_are_answered_once(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    answered = 0
    for round_, message in ((6, "a"), (1, "b"), (6, "c"), (2, "d"), (6, "e"), (1, "f"), (6, "a")):
        try:
            if not ledger.has_answered(round_, message):
                ledger.write(release(round_, message))
                answered += 1
        except RunError as err:
            assert "already answered for another message" in str(err)
    assert answered == 3  # rounds 6, 1 and 2; a round that contains another's digits is not it
    assert not ledger.has_answered(16, "g") and not ledger.has_answered(62, "g")


def test_two_processes_cannot_answer_for_one_site(birds, tmp_path):
    config = birds.home("east", tmp_path)
    with (
        config.hold_lock(),
        pytest.raises(RunError, match="another process answers"),
        config.hold_lock(),
    ):
        pass
    with config.hold_lock():
        assert config.folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "body",
    [
        {"facts": {"examples": 10}, "lacks": 5},
        {"facts": {"examples": 10}, "lacks": ["\x1b[2Jnot a class"]},
        {"facts": {"examples": 10}, "lacks": [["nested"]] * 3},
        {"facts": None, "lacks": []},
        {"facts": {"examples": 2.0**60}, "lacks": []},
        {"facts": {"examples": float("nan")}},
        {},
    ],
)
def test_a_malformed_hello_costs_that_site_and_not_the_coordinator(body, birds, tmp_path):
    loop = birds.loop(tmp_path)

    def spoil(raw, reply):
        letter = unseal(reply)
        if letter.kind != "hello":
            return reply
        return seal("hello", letter.run, letter.site, body, {}, answers=letter.answers)

    loop.spoil["west"] = spoil
    run = run_federation(loop, birds.coordinator(run={"rounds": 1, "seed": 5}), tmp_path / "run", 2)
    assert (run.server / "finished").exists()
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "site west does not take part" in log and "\x1b" not in log
    with pytest.raises(RunError, match="2 of 3 sites take part"):
        other = birds.loop(tmp_path / "again")
        other.spoil["west"] = spoil
        run_federation(other, birds.coordinator(), tmp_path / "refused", 3)


@pytest.mark.parametrize("patience", [float("inf"), float("nan"), -1.0, 1e12])
def test_an_absurd_patience_is_refused_at_the_site(patience, birds, tmp_path):
    site = birds.loop(tmp_path).stations["east"]
    body = {"terms": {}, "weights": "", "patience": patience}
    reply = unseal(site.answer(seal("hello", "run", "east", body)))
    assert reply.kind == "error" and "does not hold what it should" in reply.body["sentence"]


def test_a_foreign_run_folder_runs_no_code(tiny_config, tmp_path, monkeypatch):
    monkeypatch.delenv("VITRAIL_ALLOW_PLUGINS", raising=False)
    run = vitrail.run(tiny_config(run={"rounds": 1}), tmp_path / "run")
    marker = tmp_path / "executed"
    (run.path / "evil.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    config = run.path / "config.toml"
    text = config.read_text()
    assert "plugins = []" in text
    config.write_text(text.replace("plugins = []", 'plugins = ["evil.py"]'))
    (run.path / "server" / "finished").unlink()
    from vitrail.attack.run_attacks import run_attacks
    from vitrail.report.compose import compose
    from vitrail.report.viewer import Viewer

    compose([run.path], Viewer())
    for use in (
        lambda: vitrail.resume(run.path),
        lambda: run_attacks(vitrail.load(run.path), ["ig"]),
    ):
        with pytest.raises(ConfigError, match=r"evil\.py.*--allow-plugins"):
            use()
    assert not marker.exists()
    shutil.copytree(run.path, tmp_path / "mine")
    with pytest.raises(RunError, match="changed since it was started"):
        vitrail.resume(tmp_path / "mine", allow_plugins=True)  # allowed, and its fingerprint is not
    assert marker.exists()


def test_limits_of_a_site_are_its_own(tmp_path):
    import time

    at = time.strptime("03:30", "%H:%M")
    assert SiteLimits(hours="20:00-06:00").find_problem(tmp_path, at) is None
    assert "20:00 to 02:00" in str(SiteLimits(hours="20:00-02:00").find_problem(tmp_path, at))
    (tmp_path / "file").write_bytes(bytes(2**20))
    assert "limit" in str(SiteLimits(disk_gib=1e-6).find_problem(tmp_path))
    with pytest.raises(ValueError, match="hours"):
        SiteLimits(hours="late")


def test_consent_tells_one_epsilon_from_another_and_strips_what_is_hidden(birds, tmp_path):
    from vitrail.flower.run_terms import make_terms
    from vitrail.flower.site.consent import summarize_terms

    site = birds.home("east", tmp_path)

    def text(epsilon: float, **sections: object) -> str:
        release = {"defenses": ["client-dp"], "client-dp": {"epsilon": epsilon, "clip": 1.0}}
        terms = make_terms(birds.coordinator(release=release, **sections).config)
        return "\n".join(summarize_terms(site, terms, 25))

    assert text(1.0) != text(1e9)
    assert "epsilon 1 at delta" in text(1.0) and "epsilon 1e+09 at delta" in text(1e9)
    assert "against" in text(1.0) and "over 2 rounds" in text(1.0)
    classes = ["plain", "\x1b[2J\x1b[31mred", "right\u202eleft"]
    said = text(1.0, data={"classes": classes, "image_size": 32, "channels": 3})
    assert "\x1b" not in said and "\u202e" not in said and "red" in said
