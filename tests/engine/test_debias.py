"""A run that obeys an audit is the audited run, then the remedy; mistakes are refused."""

import json

import pytest
import torch

import vitrail
from vitrail.audit.remedy_plan import apply_remedies, compute_config_digest
from vitrail.config import parse
from vitrail.engine.plan import make_plan
from vitrail.engine.run import resume, start
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.errors import VitrailError
from vitrail.files import read_tensors

PROTO = {
    "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
    "model": {"prototypes": {"per_class": 2, "depth": 8}},
    "partition": {"kind": "iid", "sites": 3},
    "run": {"rounds": 2, "local_epochs": 1, "local_reference": True},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_config):
    """An audited run, its file, and what an audit of it could say."""
    folder = tmp_path_factory.mktemp("debias")
    loaded = parse(tiny_config(**PROTO))
    run = vitrail.run(tiny_config(**PROTO), folder / "run")
    entry = {"class": run.classes[1], "score": 9.0, "verdict": "biased", "prototypes": [2]}
    told = {
        "config": compute_config_digest(run.config),
        "sites": [
            {"site": run.sites[0], "classes": [entry]},
            {"site": run.sites[1], "classes": [{**entry, "verdict": "suspect"}]},
        ],
    }
    return folder, loaded, run, told


@pytest.fixture
def obeyed(made, tmp_path):
    """A function: the run with an audit's JSON, changed by hand, and some remedies."""

    def make(*remedies, change=None, loaded=None):
        told = json.loads(json.dumps(made[3]))
        if change is not None:
            change(told)
        (tmp_path / "audit.json").write_text(json.dumps(told))
        return apply_remedies(loaded or made[1], tmp_path / "audit.json", remedies)

    return make


def tensors(path, round_):
    return read_tensors(Checkpoints(path / "server").path(round_))[0]


def equal(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[n], two[n]) for n in one)


def test_masking_is_the_same_run_then_a_mask_and_a_new_last_layer(made, obeyed, tmp_path):
    folder, _, run, _ = made
    assert obeyed().config.debias.remedies == ("weigh",)
    loaded = obeyed("mask")
    assert loaded.config.run.rounds == 3
    start(loaded, tmp_path / "after")
    assert equal(tensors(folder / "run", 2), tensors(tmp_path / "after", 2))
    before, after = run.model(), vitrail.load(tmp_path / "after").model()
    head, old = after.network.head, before.network.head
    assert head.alive().tolist() == [True, True, False, True, True, True]
    assert torch.equal(head.vectors, old.vectors) and not torch.equal(head.weight, old.weight)
    for site in run.sites:
        one = vitrail.load(tmp_path / "after").model(site, "personal").network.head
        assert not bool(one.alive()[2])
        alone = [vitrail.load(p).model(site, "local") for p in (folder / "run", tmp_path / "after")]
        assert equal(alone[0].state_dict(), alone[1].state_dict()), "no remedy at home"


def test_a_stopped_remedy_goes_on_to_the_same_bits(obeyed, tmp_path, ending):
    loaded = obeyed("mask", "penalize")
    start(loaded, tmp_path / "whole")

    def stop(progress):
        if progress.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(loaded, tmp_path / "cut", stop)
    resume(tmp_path / "cut")
    assert equal(ending(tmp_path / "whole"), ending(tmp_path / "cut"))


def test_a_penalty_lowers_the_similarity_to_what_is_named(obeyed, tmp_path, made):
    """It would be refuted by another prototype falling farther than the one that is named."""
    found = {}
    for strength in (0.0, 5.0):
        loaded = parse(
            {**json.loads(made[1].config.model_dump_json(exclude_none=True)),
             "debias": {"strength": strength}}
        )  # fmt: skip
        start(obeyed("penalize", loaded=loaded), tmp_path / f"p{strength}")
        run = vitrail.load(tmp_path / f"p{strength}")
        model = run.model()
        x = torch.rand(40, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        z = model.network.features(model.network.prefix((x - model.shift) / model.scale))
        found[strength] = model.network.head.maps(z).detach().amax((2, 3)).mean(0)
    falls = found[0.0] - found[5.0]
    assert falls[2] > 0 and int(falls.argmax()) == 2


def test_a_site_is_left_out_or_counts_less(made, obeyed, tmp_path):
    run = made[2]
    start(obeyed("leave-out"), tmp_path / "out")
    assert vitrail.load(tmp_path / "out").sites == run.sites[1:]
    assert not (tmp_path / "out" / "sites" / run.sites[0]).exists()
    loaded = obeyed("weigh")
    debias = loaded.config.debias
    assert [debias.factor(site) for site in run.sites] == [0.1, 1.0, 1.0]
    record = loaded.config.run.model_copy(update={"record_updates": True, "rounds": 1})
    weighed = parse(
        json.loads(loaded.config.model_copy(update={"run": record}).model_dump_json(
            exclude_none=True)))  # fmt: skip
    start(weighed, tmp_path / "weighed")
    sent = sorted((tmp_path / "weighed" / "server" / "transcript").rglob("*.safetensors"))
    updates = {p.stem: read_tensors(p)[0] for p in sent}
    each = [next(t for n, t in updates.items() if site in n) for site in run.sites]
    name = "model/head.vectors"
    wanted = sum(w * t[name].double() for w, t in zip((0.1, 1.0, 1.0), each)) / 2.1
    got = vitrail.load(tmp_path / "weighed").model().network.head.vectors.double()
    assert torch.allclose(got, wanted, atol=1e-6)


def test_a_mix_is_personal_and_leaves_the_global_model_alone(made, obeyed, tmp_path):
    folder, _, run, _ = made
    start(obeyed("mix"), tmp_path / "mix")
    assert equal(tensors(folder / "run", 2), tensors(tmp_path / "mix", 2))
    after = vitrail.load(tmp_path / "mix")
    shared = after.model().network.head.vectors
    suspect, other = (after.model(s, "personal").network.head.vectors for s in run.sites[:2])
    assert torch.equal(suspect, shared)
    assert torch.equal(other[[0, 1, 4, 5]], shared[[0, 1, 4, 5]])


def broken(at, **values):
    def change(told):
        told["sites"][0]["classes"][0].update(values) if at == "class" else told["sites"][0].update(
            values
        ) if at == "site" else told.update(values)

    return change


@pytest.mark.parametrize(
    ("change", "remedy", "told"),
    [
        (broken("site", site="site-9"), "weigh", "no site 'site-9'"),
        (broken("class", **{"class": "dodo"}), "weigh", "no class 'dodo'"),
        (broken("class", prototypes=[99]), "mask", "no prototype 99"),
        (broken("class", prototypes=[0]), "mask", "no prototype of that class is 0"),
        (broken("class", prototypes=[-1]), "mask", "greater than or equal"),
        (broken("class", prototypes="all"), "mask", "prototypes"),
        (broken("class", prototypes=[2, 3]), "mask", "every prototype"),
        (broken("class", prototypes=[]), "mask", "name none"),
        (broken("class", verdict="clear"), "mask", "nothing to remedy"),
        (broken("class", score="much"), "weigh", "score"),
        (broken("top", sites=None), "mask", "not an audit"),
        (broken("top", sites=[3]), "mask", "every site needs a name"),
        (broken("top", config="another"), "mask", "another configuration"),
        (broken("top", remedies=["heal"]), None, "no remedy 'heal'"),
    ],
)
def test_what_an_expert_mistyped_is_refused_in_a_sentence(obeyed, tmp_path, change, remedy, told):
    with pytest.raises(VitrailError, match=told):
        start(obeyed(*([remedy] if remedy else []), change=change), tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_other_models_and_methods_say_what_they_cannot_do(tmp_path, tiny_config, obeyed, made):
    finding = {"site": "site-00", "label": made[2].classes[0], "prototypes": [0]}
    for name, remedy, rule, told in (
        ("fedavg", "mask", "mean", "prototypes"),
        ("feddyn", "weigh", "mean", "own mean"),
        ("fedavg", "weigh", "krum", r"debias\.remedies: 'krum' lets every site count the same"),
    ):
        debias = {"remedies": [remedy], "findings": [finding]}
        tree = tiny_config(method={"name": name}, debias=debias, aggregate={"rule": rule})
        loaded = parse(tree)
        with pytest.raises(VitrailError, match=told):
            start(loaded, tmp_path / name)
    with pytest.raises(VitrailError, match=r"debias\.rounds"):
        parse(tiny_config(**{**PROTO, "run": {"rounds": 1},
                             "debias": {"remedies": ["mask"], "findings": [finding]}}))  # fmt: skip
    with pytest.raises(VitrailError, match="every site would"):
        everyone = [{**finding, "site": f"site-{n:02}"} for n in range(4)]
        debias = {"remedies": ["leave-out"], "findings": everyone}
        start(parse(tiny_config(debias=debias)), tmp_path / "none")


def test_the_plan_counts_the_remedys_rounds_after_the_runs_own(obeyed, made):
    loaded = obeyed("mask")
    plan, _ = make_plan(loaded, made[2].classes, 3)
    assert [(s.stage.name, s.first, s.last) for s in plan.stages] == [
        ("warm", 1, 1), ("joint", 2, 2), ("debias", 3, 3),
    ]  # fmt: skip
    assert [p.name for p in plan.make_local_plan().stages[-1].stage.train] == []


def test_a_second_debiasing_does_not_move_the_runs_own_rounds(obeyed, made):
    once = obeyed("mask")
    twice = obeyed("mask", "penalize", loaded=once)
    assert twice.config == obeyed("mask", "penalize").config
    assert obeyed("weigh", loaded=once).config.run.rounds == made[2].config.run.rounds
