"""What a site says and what leaves it: the operator hears of all, the terms bind both sides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vitrail.data.patients import PatientCount
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.run_terms import is_audited, make_agreed_plan, make_terms
from vitrail.flower.site.consent import summarize_terms
from vitrail.flower.site.site_errors import SEE_SITE_LOG
from vitrail.flower.versions import list_versions
from vitrail.release.message import digest

PARTS = {"backbone": "small-cnn", "width": 4, "prototypes": {"per_class": 2, "depth": 8}}
PRIVATE = {"defenses": ["dp-sgd"]}


def told(birds, folder: Path, **sections) -> str:
    """What the operator of north is shown."""
    terms = make_terms(birds.coordinator(**sections).config)
    return "\n".join(summarize_terms(birds.home("north", folder), terms, 25))


def ledger(folder: Path, site: str) -> list[dict]:
    file = next(folder.glob(f"at-{site}/runs/*/sites/{site}/ledger.jsonl"))
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    "method, options, protection",
    [
        ("fedxds", {}, "paper, noise of deviation 0.1 on pixels in [0, 1], no formal guarantee"),
        ("fedxds", {"protection": "local-dp"}, "a formal guarantee"),
        ("fedfed", {}, "noise of deviation 0.2 and 0.25 on pixels in [0, 1], no formal guarantee"),
    ],
)
def test_the_operator_hears_that_images_leave(method, options, protection, birds, tmp_path):
    run = {**birds.terms["run"], "rounds": 4}
    said = told(birds, tmp_path, method={"name": method, **options}, run=run)
    assert "no image leaves" not in said
    assert "images/pixels, images/targets" in said and protection in said


def test_the_operator_hears_that_no_image_leaves_only_where_none_does(birds, tmp_path):
    said = told(birds, tmp_path)
    assert said.endswith("no image leaves this site")
    assert "how many training images" in said and "which classes have none" in said
    aux = {"method": {"name": "fedaux"}, "run": {**birds.terms["run"], "rounds": 4}}
    said = told(birds, tmp_path, **aux)
    assert "score/direction; protection: local DP, epsilon 1, delta 1e-05" in said


@pytest.mark.parametrize("unit", ["image", "patient"])
def test_the_operator_hears_whom_a_guarantee_is_for(unit, birds, tmp_path):
    model = {"backbone": "small-cnn", "width": 4, "norm": "group"}
    release = {**PRIVATE, "dp-sgd": {"noise": 2.0, "unit": unit}}
    terms = make_terms(birds.coordinator(model=model, release=release).config)
    site = birds.home("north", tmp_path)
    said = "\n".join(summarize_terms(site, terms, 25, PatientCount(6, 9)))
    assert f"for one {unit}, against" in said
    assert ("a patient of north has 9 images" in said) is (unit == "image")


def test_behind_a_formal_mechanism_no_number_is_announced_and_none_is_told(birds, tmp_path):
    """Exact figures by class at the end would make every epsilon before them worthless."""
    model = {"backbone": "small-cnn", "width": 4, "norm": "group"}
    terms = {
        "release": PRIVATE,
        "model": model,
        "run": {**birds.terms["run"], "local_reference": True},
    }
    said = told(birds, tmp_path, **terms)
    assert "also: no count of images and no figure" in said and "audit" not in said
    loop = birds.loop(tmp_path)
    folder = run_federation(loop, birds.coordinator(**terms), tmp_path / "run", 3)
    assert not (folder.server / "separability.json").exists()
    kinds = {line["kind"] for line in ledger(tmp_path, "north")}
    assert not kinds & {"audit summary", "audit histograms", "classes"}


def test_an_audit_that_was_not_agreed_to_gets_nothing(birds, tmp_path):
    """A coordinator that asks for it all the same: refuted by a reply that has figures."""
    terms = {
        "method": {"name": "myth-gm"},
        "model": PARTS,
        "run": {**birds.terms["run"], "rounds": 1, "local_reference": False},
    }
    loop = birds.loop(tmp_path)
    ask, replies = loop.ask, []

    def curious(sites, make_message, patience):
        def make_changed(site):
            letter = unseal(make_message(site))
            body = {**letter.body, "audit": True} if "audit" in letter.body else letter.body
            return seal(letter.kind, letter.run, site, body, letter.tensors)

        for site, reply in ask(sites, make_changed, patience):
            replies.append(unseal(reply))
            yield site, reply

    loop.ask = curious
    run_federation(loop, birds.coordinator(**terms), tmp_path / "run", 3)
    asked = [unseal(raw).body for _, raw in loop.asked]
    assert sum(body.get("audit", False) for body in asked) == 3  # else it tests nothing
    assert not any("told" in letter.body for letter in replies)
    log = next(tmp_path.glob("at-north/runs/*/log.txt")).read_text()
    assert "audit's figures against the terms" in log


def test_which_classes_a_site_lacks_is_in_its_ledger(birds, tmp_path):
    run_federation(birds.loop(tmp_path), birds.coordinator(), tmp_path / "run", 3)
    lines = [line for line in ledger(tmp_path, "north") if line["kind"] == "classes"]
    assert len(lines) == 1
    assert lines[0]["classes"] == 3 and lines[0]["figures"] == ["held"]
    assert lines[0]["guarantee"].startswith("empirical")


FAULTS = {
    "broken image": "patient-17",
    "missing file": "patient-17",
    "unknown label": "heron",
    "no images": "private-place",
    "full disk": "private-place",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_reply_names_a_path_or_a_file_of_the_site(fault, birds, tmp_path, monkeypatch):
    """Whatever is wrong at a site, its log says it and its reply says the kind of it."""
    loop = birds.loop(tmp_path)
    station = loop.stations["north"]
    place = tmp_path / "private-place"
    place.mkdir()
    label = "heron" if fault == "unknown label" else birds.terms["data"]["classes"][0]
    rows = "path,label,split\n" + f"patient-17.png,{label},train\n" * 3
    if fault == "broken image":
        (place / "patient-17.png").write_bytes(b"no image")
    if fault != "no images":
        (place / "own.csv").write_text(rows)
    object.__setattr__(station.config, "data", {"source": "manifest", "path": f"{place}/own.csv"})
    if fault == "full disk":

        def full(*args, **more):
            raise OSError(28, "No space left on device", f"{place}/patient-17.png")

        monkeypatch.setattr("vitrail.flower.site.site_server.load_federation", full)
    hello = {"terms": make_terms(birds.coordinator().config), "versions": list_versions()}
    reply = station.answer(seal("hello", "run", "north", hello))
    assert unseal(reply).kind == "error" and SEE_SITE_LOG in unseal(reply).body["sentence"]
    for secret in (b"private-place", b"patient-17", b"heron", b"own.csv", bytes(tmp_path)):
        assert secret not in reply
    log = (station.config.folder / "log.txt").read_text()
    assert FAULTS[fault] in log and "run 'run'" in log


@pytest.mark.parametrize(
    "round_, closing, good",
    [
        (0, False, False),
        (-1, False, False),
        (1, False, True),
        (3, False, False),
        (2**70, False, False),
        (1, True, False),
        (2, True, False),
        (4, True, False),
    ],
)
def test_a_turn_of_no_agreed_round_is_refused(round_, closing, good, birds, tmp_path):
    """Else a site trains and releases for as long as it is asked; 2 rounds were agreed on."""
    loop = birds.loop(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_federation(loop, birds.coordinator(), tmp_path / "run", 3, on_round=_stop)
    turn = next(raw for s, raw in loop.asked if s == "north" and unseal(raw).kind == "turn")
    letter = unseal(turn)
    task = {**letter.body["task"], "round": round_, "closing": closing}
    stage = "closing" if closing else make_agreed_plan(birds.coordinator())[0].stages[0].stage.name
    marked = digest({"round": round_, "stage": stage}, letter.tensors)  # right in all else
    body = {**letter.body, "task": task, "digest": marked}
    raw = seal("turn", letter.run, "north", body, letter.tensors)
    before = ledger(tmp_path, "north")
    answer = unseal(loop.stations["north"].answer(raw))
    assert (answer.kind == "turn") is good
    assert good or "rounds agreed on" in answer.body["sentence"]
    assert ledger(tmp_path, "north") == before


def _stop(progress) -> None:
    raise KeyboardInterrupt


def test_audits_are_told_where_the_terms_say_so(birds):
    def plan(**sections):
        return make_agreed_plan(
            birds.coordinator(model=PARTS, method={"name": "myth-gm"}, **sections)
        )[0]

    run = birds.terms["run"]
    assert is_audited(plan())
    assert not is_audited(plan(run={**run, "local_reference": False}))
