"""Ways around what a site agreed to or never agrees to: each one was open once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_object_id

from vitrail.engine.site_turn import Host
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.tasks import MissingReply
from vitrail.errors import RunError
from vitrail.files import make_folder_name
from vitrail.flower.coordinator.disk_store import DiskObjectStore
from vitrail.flower.coordinator.fleet_link import FleetLink
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.run_terms import make_agreed_plan, make_terms, resolve_terms
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.site.policy_check import find_breaches
from vitrail.flower.site.site_server import SiteServer
from vitrail.flower.versions import list_versions
from vitrail.rng import Key

PARTS = {"backbone": "small-cnn", "width": 4, "prototypes": {"per_class": 2, "depth": 8}}
NOISY = {"defenses": ["client-dp"], "client-dp": {"noise": 5.0}}


def make_hello(birds, run="run", changes=(), **sections):
    terms = make_terms(resolve_terms(birds.coordinator(**sections)).config)
    for section, key, value in changes:
        terms[section][key] = value
    return seal("hello", run, "north", {"terms": terms, "versions": list_versions()})


def list_breaches(birds, policy, **sections):
    plan, _ = make_agreed_plan(birds.coordinator(**sections))
    return [b.line for b in find_breaches(SitePolicy(**policy), plan, "north", 25)]


def test_a_run_is_played_under_the_terms_that_were_agreed_to(birds, tmp_path):
    """Terms without noise that fail on their way to the operator, then terms with noise."""
    home = birds.home("north", tmp_path, yes=False)
    station = SiteServer(home, seeded=True)
    for other in ("a", "b", "c"):
        home.propose(other, {}, ["something"])
    assert unseal(station.answer(make_hello(birds))).kind == "error"  # three others wait
    object.__setattr__(home, "wait", lambda *_: True)
    assert unseal(station.answer(make_hello(birds, release=NOISY))).kind == "hello"
    assert station._current is not None
    assert station._current[1].plan.config.release.defenses == ("client-dp",)


def test_two_names_of_a_run_are_not_one_folder(birds, tmp_path):
    """Noise is drawn by the name of a run, so an alias would draw it anew, past the ledger."""
    loop = birds.loop(tmp_path)
    north = loop.stations["north"]
    assert unseal(north.answer(make_hello(birds, "a b"))).kind == "error"
    assert unseal(north.answer(make_hello(birds, make_folder_name("a b")))).kind == "hello"
    for name in ("../x", "", "a\nb", "x" * 1000, "A"):
        reply = unseal(north.answer(make_hello(birds, name)))
        assert reply.kind == "error" and "name of a run" in reply.body["sentence"]


@pytest.mark.parametrize("line", [{"epsilon": 8.0}, {"units": ("site",)}, {"delta": 1e-3}])
def test_noise_that_the_coordinator_adds_is_no_proof_for_a_site(line, birds):
    def release(where):
        return {"defenses": ["client-dp"], "client-dp": {"epsilon": 1.0, "where": where}}

    assert list_breaches(birds, line, release=release("sum")) == [*line]
    assert list_breaches(birds, line, release=release("site")) == []


@pytest.mark.parametrize(
    "sections",
    [
        {"method": {"name": "myth-gm"}, "model": PARTS},  # an audit's table counts its images
        {"method": {"name": "fedxds"}, "run": {"rounds": 4}},  # every image has its label
    ],
)
def test_class_counts_do_not_leave_under_another_name(sections, birds):
    assert list_breaches(birds, {"histograms": False}, **sections) == ["histograms"]


def test_terms_cannot_name_a_file_of_the_site(birds, tmp_path):
    station = SiteServer(birds.home("north", tmp_path), seeded=True)
    file = tmp_path / "mine.pt"
    for there in (False, True):
        if there:
            file.write_bytes(b"private")
        reply = unseal(station.answer(make_hello(birds, changes=[("model", "weights", str(file))])))
        assert reply.kind == "error"
        assert "weights" in station.config.folder.joinpath("log.txt").read_text().splitlines()[-1]
        assert "which is for the site alone" in (station.config.folder / "log.txt").read_text()


@pytest.mark.parametrize(("root", "strict"), [(Key(b"x" * 32), True), (None, False)])
def test_a_site_answers_a_round_once_on_any_device(root, strict, tmp_path):
    """A simulation on a GPU may write a second release; a real site must refuse to."""
    inputs = SimpleNamespace(device=torch.device("cuda"))
    host = SimpleNamespace(inputs=inputs, root=root, plan=SimpleNamespace(private=False))
    ledger = Host._open_ledger(host, SiteFolder(tmp_path, "north"))
    ledger.write({"kind": "release", "round": 1, "message": "a"})
    if strict:
        with pytest.raises(RunError, match="already answered for another message"):
            ledger.has_answered(1, "b")
    else:
        assert not ledger.has_answered(1, "b")


def make_tree(objects):
    """Objects, the last inside the one before it, as a site announces them."""
    tree = None
    for name in reversed(objects):
        tree = ObjectTree(object_id=name, children=[] if tree is None else [tree])
    return tree


def make_object(kind, children, body):
    return f"{kind} {','.join(children)} {len(body)}".encode() + b"\x00" + body


@pytest.mark.parametrize("fault", ["protobuf", "no child", "list", "tree"])
def test_rubbish_in_flowers_own_form_costs_its_site_alone(fault, tmp_path):
    record = make_object("ConfigRecord", [], b"\xff\xff\xff")
    inner = get_object_id(record)
    kinds = {
        "protobuf": [
            make_object("RecordDict", [inner], b'{"vitrail": "%s"}' % inner.encode()),
            record,
        ],
        "no child": [make_object("Message", [], b"")],
        "list": [make_object("RecordDict", [], b"[]")],
        "tree": [],
    }
    store = DiskObjectStore(tmp_path)
    names = [get_object_id(one) for one in kinds[fault]]
    if names:
        store.preregister(1, make_tree(names))
    for name, one in zip(names, kinds[fault], strict=True):
        store.put(name, one)
    state = SimpleNamespace(object_store=store, get_object=lambda _, name: store.get(name))
    server = SimpleNamespace(state=state, run_id=1, names={})
    answer = FleetLink(server)._read(names[0] if names else "0" * 64, 7)
    assert isinstance(answer, MissingReply) and "cannot be read" in answer.reason


def test_a_small_tree_that_never_ends_is_not_taken(tmp_path):
    """Twenty small messages, each naming the one before ten times, are 10^20 objects to walk."""
    store = DiskObjectStore(tmp_path)
    leaf = ObjectTree(object_id="0" * 64)
    for children in ([leaf] * 10, [leaf, leaf]):
        with pytest.raises(ValueError, match="one of our messages"):
            store.preregister(1, ObjectTree(object_id="1" * 64, children=children))
    with pytest.raises(ValueError, match="one of our messages"):
        store.preregister(1, make_tree([digit * 64 for digit in "1234"]))
    assert len(store) == 0
    assert len(store.preregister(1, make_tree([digit * 64 for digit in "123"]))) == 3
