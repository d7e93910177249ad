"""What a site never agrees to, whoever proposes it: its policy, who signed, which versions."""

from __future__ import annotations

import json
import textwrap

import pytest
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.config import dump
from vitrail.errors import RunError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.keys import make_keys
from vitrail.flower.node_key import make_node_key
from vitrail.flower.run_terms import make_agreed_plan, make_terms, resolve_terms
from vitrail.flower.site.consent import summarize_terms
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.site.policy_check import find_breaches
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import SiteServer
from vitrail.flower.terms_signature import sign_terms
from vitrail.flower.versions import list_versions

GROUP = {"backbone": "small-cnn", "width": 4, "norm": "group"}
PARTS = {"backbone": "small-cnn", "width": 4, "prototypes": {"per_class": 2, "depth": 8}}
PRIVATE = {"release": {"defenses": ["dp-sgd"], "dp-sgd": {"epsilon": 8}}, "model": GROUP}
MYTH = {"method": {"name": "myth-gm"}, "model": PARTS}
SHARING = {"method": {"name": "fedxds"}, "run": {"rounds": 4, "batch_size": 8}}
BROKEN = {  # line: (its value, terms that break it, terms that keep it)
    "epsilon": (
        4,
        PRIVATE,
        {**PRIVATE, "release": {"defenses": ["dp-sgd"], "dp-sgd": {"epsilon": 4}}},
    ),
    "delta": (1e-6, PRIVATE, None),
    "units": (["site"], PRIVATE, {"release": {"defenses": ["client-dp"]}}),
    "mechanisms": (["client-dp"], PRIVATE, {"release": {"defenses": ["client-dp"]}}),
    "methods": (["fedavg"], MYTH, {}),
    "images": (False, SHARING, {}),
    "histograms": (False, {"method": {"name": "feddisco"}}, {}),
    "audits": (False, MYTH, {}),
    "model_share": (0.5, {}, None),
    "rounds": (1, {}, {"run": {"rounds": 1}}),
    "secure_sum": (True, {}, {"release": {"secure_sum": True}}),
    "cohort": (3, {}, {"run": {"rounds": 2, "min_sites": 3}}),
    "signers": (["officer"], {}, None),
}


def plan_of(birds, sections):
    return make_agreed_plan(birds.coordinator(**sections))[0]


def breaches(birds, policy, sections, examples=25):
    return [b.line for b in find_breaches(policy, plan_of(birds, sections), "north", examples)]


@pytest.mark.parametrize("line", BROKEN)
def test_every_line_refuses_what_breaks_it_and_nothing_else(line, birds):
    value, bad, good = BROKEN[line]
    policy = SitePolicy.model_validate({line: value})
    assert breaches(birds, policy, bad) == [line]
    assert good is None or breaches(birds, policy, good) == []
    assert breaches(birds, SitePolicy(), bad) == []


@pytest.mark.parametrize("line", ["epsilon", "delta", "units", "mechanisms"])
def test_without_a_proof_every_line_about_proofs_is_broken(line, birds):
    policy = SitePolicy.model_validate({line: BROKEN[line][0]})
    assert breaches(birds, policy, {}) == [line]


STEPS = {
    "method": {"name": "fedgrasp", "consensus": "tangent", "personal_epochs": 0},
    "model": {"backbone": "small-cnn", "width": 4, "subspaces": {"depth": 8, "hidden": 8}},
}
BY_SITE = {"epsilon": 4.0, "delta": 1e-4}


@pytest.mark.parametrize("name", ["client-dp", "subspace-dp"])
def test_noise_that_is_distributed_counts_as_a_proof_and_that_of_the_server_does_not(name, birds):
    """Was refused as the coordinator's own noise, so no site with a policy could take part."""

    def terms(where):
        options = {**BY_SITE, "where": where}
        more = {"level": "site", "clip": 1.0} if name == "subspace-dp" else {}
        release = {"defenses": [name], name: {**options, **more}}
        release["secure_sum"] = where == "distributed"
        return {**(STEPS if more else {"model": GROUP}), "release": release}

    policy = SitePolicy(epsilon=4, delta=1e-4, units=("site",))
    assert breaches(birds, policy, terms("distributed")) == []
    assert breaches(birds, policy, terms("sum")) == ["epsilon"]
    assert breaches(birds, SitePolicy(epsilon=3), terms("distributed")) == ["epsilon"]
    assert breaches(birds, SitePolicy(units=("image",)), terms("distributed")) == ["units"]


def test_given_noise_is_counted_as_the_epsilon_it_costs(birds):
    """Terms without a target could spend anything: refuted by noise that is let through."""

    def noisy(noise):
        return {**PRIVATE, "release": {"defenses": ["dp-sgd"], "dp-sgd": {"noise": noise}}}

    policy = SitePolicy(epsilon=8)
    assert breaches(birds, policy, noisy(0.3)) == ["epsilon"]
    assert breaches(birds, policy, noisy(50.0)) == []


def test_terms_that_break_a_policy_are_refused_before_an_image_is_read(
    birds, tmp_path, monkeypatch
):
    loop = birds.loop(tmp_path)
    north = loop.stations["north"]
    object.__setattr__(north.config, "policy", SitePolicy(rounds=1))
    read = []
    monkeypatch.setattr(north, "_open_run", lambda *args: read.append(args))
    run = run_federation(loop, birds.coordinator(), tmp_path / "run", sites=2)
    assert read == [] and (run.server / "finished").exists()
    assert (
        "north does not take part: it says: the terms break this site's policy (policy.rounds)"
        in (tmp_path / "run" / "log.txt").read_text()
    )
    said = (north.config.folder / "log.txt").read_text()
    assert "2 rounds are more than 1 (policy.rounds)" in said


def test_terms_with_another_epsilon_print_another_text(birds, tmp_path):
    """The operator of terms with epsilon 1e9 must not read what one with 1 reads."""

    def told(epsilon):
        release = {"defenses": ["dp-sgd"], "dp-sgd": {"epsilon": epsilon, "clip": 0.7}}
        terms = make_terms(birds.coordinator(release=release, model=GROUP).config)
        return "\n".join(summarize_terms(birds.home("north", tmp_path), terms, 25))

    small, large = told(1.0), told(1e9)
    assert small != large and "epsilon 1 at delta" in small and "epsilon 1e+09" in large
    assert "clip 0.7" in small and "this site has no policy" in small


def test_claims_of_many_images_do_not_make_the_model(birds, tmp_path):
    """Refuted by a site that claims 2^52 images and is followed: it counts three times
    the median site, 87 of 139 here."""

    def inflate(raw, reply):
        letter = unseal(reply)
        if letter.kind == "hello":
            body = {**letter.body, "facts": {"examples": 2.0**52}}
        elif letter.kind == "turn" and "counts" in letter.body:
            counts = {name: 2**52 for name in letter.body["counts"] if name == "examples"}
            body = {**letter.body, "counts": {**letter.body["counts"], **counts}}
        else:
            return reply
        return seal(letter.kind, letter.run, letter.site, body, letter.tensors, letter.answers)

    loop = birds.loop(tmp_path)
    loop.spoil["west"] = inflate
    run_federation(loop, birds.coordinator(), tmp_path / "run", sites=3)
    log = next((tmp_path / "at-north").glob("runs/*/log.txt")).read_text()
    share = float(log.split("the largest one ")[1].split("%")[0])
    assert 60 < share < 64 and "3 sites take part; this one counts" in log
    strict = birds.loop(tmp_path / "strict")
    strict.spoil["west"] = inflate
    object.__setattr__(strict.stations["north"].config, "policy", SitePolicy(largest_weight=0.5))
    with pytest.raises(RunError, match=r"2 of 3 sites take part.*policy\.largest_weight"):
        run_federation(strict, birds.coordinator(), tmp_path / "refused", sites=3)


def test_an_update_cannot_count_more_images_than_were_told(birds, tmp_path):
    def inflate(raw, reply):
        letter = unseal(reply)
        if letter.kind != "turn" or "examples" not in letter.body["counts"]:
            return reply
        body = {**letter.body, "counts": {**letter.body["counts"], "examples": 2**40}}
        return seal("turn", letter.run, letter.site, body, letter.tensors, letter.answers)

    loop = birds.loop(tmp_path)
    loop.spoil["west"] = inflate
    run_federation(loop, birds.coordinator(), tmp_path / "run", sites=3)
    assert "count 'examples' is 1099511627776" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize("name", ["vitrail", "torch", "flwr", "runtime", "schema"])
def test_another_version_is_refused_in_a_sentence(name, birds, tmp_path):
    station = SiteServer(birds.home("north", tmp_path), seeded=True)
    versions = {**list_versions(), name: "0.0.9\x1b[2J"}
    hello = {"terms": make_terms(birds.coordinator().config), "versions": versions}
    sentence = unseal(station.answer(seal("hello", "run", "north", hello))).body["sentence"]
    assert f"the coordinator has {name} 0.0.9" in sentence and "\x1b" not in sentence


def test_terms_must_be_signed_by_whom_the_policy_names(birds, tmp_path):
    """Red: nobody signed, somebody else signed, other terms were signed. Green: the officer."""
    keys = make_keys(tmp_path / "keys", ["north", "east"], ["localhost"]).site("north")
    (keys / "signers").mkdir()
    for name in ("officer", "stranger"):
        make_node_key(tmp_path / name)
    (keys / "signers" / "officer.pub").write_bytes((tmp_path / "officer" / "node.pub").read_bytes())
    home = birds.home("north", tmp_path)
    object.__setattr__(home, "policy", SitePolicy(signers=("officer",)))
    terms = make_terms(resolve_terms(birds.coordinator()).config)
    other = make_terms(resolve_terms(birds.coordinator(run={"rounds": 9})).config)

    def ask(signature):
        hello = {"terms": terms, "versions": list_versions(), "signatures": signature}
        station = SiteServer(home, seeded=True, keys=keys)
        return unseal(station.answer(seal("hello", "run", "north", hello)))

    def sign(who, what, name="officer"):
        return {name: sign_terms(what, name, tmp_path / who / "node.key").signature}

    for wrong in ({}, sign("stranger", terms), sign("officer", other), sign("officer", terms, "x")):
        assert "policy.signers" in ask(wrong).body["sentence"]
    assert ask(sign("officer", terms)).kind == "hello"


def test_policy_check_names_each_line_and_its_code_is_1(birds, tmp_path):
    home = birds.home("north", tmp_path)
    home.file.write_text(
        home.file.read_text() + '[policy]\nrounds = 5\nepsilon = 2.0\nsigners = ["officer"]\n'
    )
    (tmp_path / "federation.toml").write_text(dump(birds.coordinator(**PRIVATE).config))
    runner = CliRunner()
    terms = str(tmp_path / "terms.json")
    words = ["flower", "terms", "write", str(tmp_path / "federation.toml"), "--out", terms]
    assert runner.invoke(app, words).exit_code == 0
    assert json.loads((tmp_path / "terms.json").read_text())["aggregate"]["largest_weight"] == 3.0
    check = ["flower", "policy", "check", terms, "--file", str(home.file)]
    result = runner.invoke(app, check)
    assert result.exit_code == 1 and "ok     policy.rounds = 5" in result.output
    assert "BREAKS policy.epsilon: epsilon 8 of 'dp-sgd' is over 2" in result.output
    assert "BREAKS policy.signers: 'officer' has not signed them" in result.output


def test_the_policy_of_the_guide_is_one(birds, tmp_path, project):
    """Every line that there is stands in the guide, and the guide has no other."""
    page = (project / "docs/how-to/run-a-real-federation.md").read_text()
    block = page.split("    [policy]\n")[1].split("\n\n")[0]
    home = birds.home("north", tmp_path)
    home.file.write_text(home.file.read_text() + "[policy]\n" + textwrap.dedent(block) + "\n")
    policy = SiteConfig.open(home.file).policy
    assert policy.model_fields_set == set(SitePolicy.model_fields)


def test_a_policy_that_was_tightened_ends_a_run_that_has_begun(birds, tmp_path):
    """Refuted by a site that goes on under terms it would no longer agree to."""
    loop = birds.loop(tmp_path)

    def tighten(progress):
        if progress.round == 1:
            config = loop.stations["north"].config
            object.__setattr__(config, "policy", SitePolicy(methods=("myth-gm",)))
            loop.stations["north"] = SiteServer(config, seeded=True)  # started again

    run = {"rounds": 3, "batch_size": 8, "seed": 5}
    coordinator = birds.coordinator(run=run)
    run_federation(loop, coordinator, tmp_path / "run", sites=3, on_round=tighten)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "round 2: without north: it says: the terms break this site's policy" in log
