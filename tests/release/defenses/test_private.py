"""Formal mechanisms in whole runs: what they guarantee, what they withhold, what they refuse."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch

import vitrail
from vitrail.config.load import parse
from vitrail.config.schema import Release
from vitrail.engine.data_pins import digest_images
from vitrail.engine.federation import load_federation
from vitrail.engine.plan import make_plan
from vitrail.engine.site_turn import Host, compute_mechanism_digest
from vitrail.errors import ConfigError
from vitrail.files import read_tensors
from vitrail.grid_noise import add_noise, find_step
from vitrail.local.phases.push import Push
from vitrail.release.accounting.accountant import Event, compute_epsilon
from vitrail.release.defenses.additive import compute_norm
from vitrail.rng import Key, derive_site_key

DELTA = 1e-3
GROUP = {"norm": "group"}
SUBSPACES = {
    "method": {"name": "fedgrasp", "personal_epochs": 0},
    "model": {"norm": "group", "subspaces": {"depth": 8, "hidden": 8}},
}
STEPS = {**SUBSPACES, "method": {**SUBSPACES["method"], "consensus": "tangent"}}
RUN = {"local_reference": False}


def behind(name, **options):
    return {"release": {"defenses": [name], name: {"epsilon": 4.0, "delta": DELTA, **options}}}


def ledgers(path):
    return {
        file.parent.name: [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(path.glob("sites/*/ledger.jsonl"))
    }


MECHANISMS = {
    "dp-sgd": {"model": GROUP, **behind("dp-sgd")},
    "client-dp": {"model": GROUP, **behind("client-dp")},
    "client-dp in the sum": {"model": GROUP, **behind("client-dp", where="sum")},
    "subspace-dp of images": {**SUBSPACES, **behind("subspace-dp")},
    "subspace-dp of sites": {**SUBSPACES, **behind("subspace-dp", level="site")},
    "subspace-dp in the sum": {**SUBSPACES, **behind("subspace-dp", level="site", where="sum")},
    "subspace-dp of steps": {**STEPS, **behind("subspace-dp", level="site", clip=0.5)},
    "subspace-dp of steps in the sum": {
        **STEPS,
        **behind("subspace-dp", level="site", where="sum", clip=0.5),
    },
    "dp-sgd of subspaces": {**SUBSPACES, **behind("dp-sgd")},
    "dp-sgd with a push": {
        "method": {"name": "myth-pm", "warm_epochs": 1, "last_epochs": 1},
        "model": {"norm": "group", "prototypes": {"per_class": 2, "depth": 8}},
        **behind("dp-sgd"),
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_config):
    made = {}

    def get(name):
        if name not in made:
            changes = copy.deepcopy(MECHANISMS[name])
            config = tiny_config(**changes)
            config["run"] |= {**RUN, "record_updates": True}
            made[name] = vitrail.run(config, tmp_path_factory.mktemp("private") / "run")
        return made[name]

    return get


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_target_is_hit_at_the_end_and_never_passed(name, runs):
    run = runs(name)
    for lines in ledgers(run.path).values():
        spent = [line["spends"][0] for line in lines if line.get("spends")]
        assert len(spent) == 3
        found = [spend["epsilon"] for spend in spent]
        assert found == sorted(found) and 0.98 * 4.0 <= found[-1] <= 4.0
        events = [Event(*event) for spend in spent for event in spend["events"]]
        assert found[-1] == pytest.approx(compute_epsilon(events, DELTA), rel=1e-9)
        assert spent[-1]["against"] in str(lines) and spent[-1]["unit"]


@pytest.mark.parametrize("name", MECHANISMS)
def test_nothing_exact_leaves_beside_the_noise(name, runs):
    """Counts, figures and facts stay home; what was sent is read from the server's own tape."""
    run = runs(name)
    files = list(run.path.glob("server/transcript/*/updates/*.safetensors"))
    assert len(files) == 12
    for meta in (read_tensors(file)[1] for file in files):
        assert not meta["counts"] and not meta["metrics"] and meta["weight"] == 1.0
    for lines in ledgers(run.path).values():
        enrolled = next(line for line in lines if line["kind"] == "enroll")
        assert set(enrolled["facts"].values()) == {1.0}
        for line in lines:
            if line["kind"] == "release":
                assert line["counts"] == {} and line["metrics"] == []
                assert line["guarantee"].startswith(("formal: (epsilon", "nothing left"))
    assert run.curve(where="sites")[-1][0] == 3  # the figures are there, at home
    assert "training images" not in (run.path / "log.txt").read_text()


def tape(run):
    """What the server received, as (what it had sent, a site's tensors) for every update."""
    for folder in sorted(run.path.glob("server/transcript/round-*")):
        down, _ = read_tensors(folder / "sent.safetensors")
        for file in sorted(folder.glob("updates/*.safetensors")):
            yield down, read_tensors(file)[0]


@pytest.mark.parametrize(
    "level", ["subspace-dp of images", "subspace-dp of sites", "subspace-dp of steps"]
)
def test_subspaces_alone_leave_and_the_rest_goes_back_as_it_came(level, runs):
    for down, up in tape(runs(level)):
        moved = {name for name in up if not torch.equal(up[name], down[name])}
        assert moved == {"model/head.frames"}


def test_a_push_is_for_pictures_only_while_the_run_lasts(runs):
    run = runs("dp-sgd with a push")
    plan, _ = make_plan(run.loaded, run.classes, run.card["channels"])
    pushes = [p for stage in plan.stages for p in stage.stage.arrive if isinstance(p, Push)]
    assert pushes and not any(push.real for push in pushes)
    assert all("push/row" in run.own(site, "personal") for site in run.sites)
    plain, _ = make_plan(
        replace(run.loaded, config=run.config.model_copy(update={"release": Release()})),
        run.classes,
        run.card["channels"],
    )
    assert any(getattr(p, "real", False) for stage in plain.stages for p in stage.stage.arrive)


def test_a_clipped_update_is_no_longer_than_the_clip(runs, tiny):
    """Noise in the sum: what a site sends is the clipped change itself."""
    run = tiny(
        run={**RUN, "record_updates": True},
        model=GROUP,
        **behind("client-dp", where="sum", clip=0.01),
    )
    lengths = [
        sum(float((up[n].double() - down[n].double()).square().sum()) for n in up) ** 0.5
        for down, up in tape(run)
    ]
    assert lengths and max(lengths) == pytest.approx(0.01, rel=1e-3)


def digest_data(run, key):
    """What noise depends on of the first site's images."""
    federation = load_federation(run.loaded)
    images, rows = federation.images, federation.sites[sorted(run.sites)[0]]
    return digest_images(images.images, images.labels, rows, key)


def noise_of(run, key, deviation):
    """The noise of round 1 at the first site, as whoever holds a key would draw it."""
    down, up = next(iter(tape(run)))
    lines = ledgers(run.path)[sorted(run.sites)[0]]
    names = [n for n, *_ in next(x for x in lines if x["kind"] == "declaration")["tensors"]]
    like = {name: up[name] for name in names}
    message = next(x for x in lines if x["kind"] == "release")["message"]
    cause, data = compute_mechanism_digest(run.config), digest_data(run, key)
    at = key.at("round", 1, "noise", cause, message, data, "release", "client-dp")
    source = at.stream()
    drawn = {n: add_noise(torch.zeros_like(t), deviation, source, down[n]) for n, t in like.items()}
    return {n: up[n].double() - drawn[n] for n in up}


@pytest.mark.parametrize("own", [False, True])
def test_a_server_that_knows_the_seed_cannot_take_the_noise_off(own, tiny, monkeypatch):
    """With a secret of the site's own; in simulation it can, which shows that this test bites."""
    if own:
        monkeypatch.setattr(Host, "secret", lambda self, site: Key(b"s" * 32, (site,)))
    run = tiny(run={**RUN, "record_updates": True}, model=GROUP, **behind("client-dp"))
    site = sorted(run.sites)[0]
    line = ledgers(run.path)[site]
    deviation = next(x for x in line if x["kind"] == "budget")["noise"]
    rest = compute_norm(noise_of(run, derive_site_key(run.config.run.seed, site), deviation))
    numbers = sum(t.numel() for t in next(iter(tape(run)))[1].values())
    if own:
        assert rest == pytest.approx(deviation * (2 * numbers) ** 0.5, rel=0.05)
    else:
        # the clipped change is all that is left, and what the grid rounds
        assert rest <= 1.0 + find_step(deviation) * numbers**0.5
    secrets = {x["secret"] for x in line if "secret" in x}
    assert secrets == {"own" if own else "simulated"}


def test_noise_depends_on_the_run_and_on_every_mechanism_but_not_on_masks(tiny_config):
    """A site's secret outlives a run: whoever could have the same draws with another scale, or in
    another run, would take the noise off."""

    def cause(run="", **release):
        config = parse(tiny_config(release={"defenses": ["client-dp"], **release})).config
        return compute_mechanism_digest(config, run)

    plain = cause(**{"client-dp": {"epsilon": 8.0}})
    assert plain == cause(**{"client-dp": {"epsilon": 8.0}})
    assert plain == cause(secure_sum=True, **{"client-dp": {"epsilon": 8.0}})
    others = [
        cause("run-1", **{"client-dp": {"epsilon": 8.0}}),
        cause("run-2", **{"client-dp": {"epsilon": 8.0}}),
        cause(**{"client-dp": {"epsilon": 4.0}}),
        compute_mechanism_digest(parse(tiny_config(method={"name": "fedxds"})).config),
        compute_mechanism_digest(
            parse(tiny_config(method={"name": "fedxds", "sigma": 0.2})).config
        ),
    ]
    assert len({plain, *others}) == 6


REFUSED = {
    "BatchNorm": ({**behind("dp-sgd")}, "mixes the images of a batch", "model.norm"),
    "delta above 1/n": (
        {"model": GROUP, **behind("dp-sgd", delta=0.2)},
        "publishing one of them",
        "release.dp-sgd.delta",
    ),
    "epsilon 0": ({"model": GROUP, **behind("dp-sgd", epsilon=0.0)}, "greater than 0", "epsilon"),
    "negative epsilon": ({"model": GROUP, **behind("client-dp", epsilon=-1.0)}, "greater", "eps"),
    "NaN epsilon": ({"model": GROUP, **behind("client-dp", epsilon=math.nan)}, "", "epsilon"),
    "delta 0": ({"model": GROUP, **behind("client-dp", delta=0.0)}, "greater than 0", "delta"),
    "clip 0": ({"model": GROUP, **behind("client-dp", clip=0.0)}, "greater than 0", "clip"),
    "weights by images": (
        {"model": GROUP, "aggregate": {"weights": "examples"}, **behind("dp-sgd")},
        "how many each site has",
        "aggregate.weights",
    ),
    "a method that tells": (
        {"model": GROUP, "method": {"name": "feddisco"}, **behind("client-dp")},
        "discrepancy",
        "release.defenses",
    ),
    "a method that counts": (
        {"model": GROUP, "method": {"name": "fednova"}, **behind("dp-sgd")},
        "tau",
        "release.defenses",
    ),
    "the label histogram": (
        {
            "method": {"name": "fedgrasp", "weights": "class-counts"},
            "model": SUBSPACES["model"],
            **behind("subspace-dp"),
        },
        "counts/classes",
        "release.defenses",
    ),
    "a clip of whole subspaces": (
        {**SUBSPACES, **behind("subspace-dp", level="site", clip=1.0)},
        'consensus = "tangent"',
        "release.subspace-dp.clip",
    ),
    "a clip of images": (
        {**STEPS, **behind("subspace-dp", clip=1.0)},
        "are for whole sites",
        "release.subspace-dp.level",
    ),
    "shared noise without a clip": (
        {**STEPS, **behind("subspace-dp", level="site", where="distributed")},
        "the longest step",
        "release.subspace-dp.clip",
    ),
    "shared noise without a secure sum": (
        {**STEPS, **behind("subspace-dp", level="site", where="distributed", clip=1.0)},
        "protects none of them alone",
        "release.subspace-dp.where",
    ),
    "no subspace": ({"model": GROUP, **behind("subspace-dp")}, "no subspace", "release.defenses"),
    "a round without noise": (
        {"model": GROUP, **behind("dp-sgd", schedule=[1.0, 0.0, 1.0])},
        "no guarantee",
        "schedule",
    ),
    "a site nobody knows": (
        {"model": GROUP, **behind("dp-sgd", sites={"site-99": 1.0})},
        "site-99",
        "release.dp-sgd.sites",
    ),
    "a robust rule and noise in the sum": (
        {"model": GROUP, "aggregate": {"rule": "median"}, **behind("client-dp", where="sum")},
        "median",
        "release.client-dp.where",
    ),
    "learned at home first": (
        {
            "method": {"name": "myth-pm", "first_share": []},
            "model": GROUP,
            **behind("client-dp"),
        },
        "learned at home",
        "release.defenses",
    ),
    "two gradients": (
        {"model": GROUP, "method": {"name": "fedsam"}, **behind("dp-sgd")},
        "both want to",
        "release.defenses",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_void_the_guarantee_is_refused_before_anything_leaves(name, tiny, tmp_path):
    changes, says, where = REFUSED[name]
    with pytest.raises(ConfigError) as err:
        tiny(run=RUN, **changes)
    assert says in str(err.value) and where in str(err.value)
    assert not list((tmp_path / "run").glob("server/transcript/*"))
    for lines in ledgers(tmp_path / "run").values():
        assert not any(line["kind"] == "release" for line in lines)


def test_each_site_has_its_own_epsilon_and_the_schedule_is_accounted(tiny, releases):
    run = tiny(
        run=RUN,
        model=GROUP,
        release={
            "defenses": ["client-dp"],
            "client-dp": {
                "epsilon": 4.0,
                "delta": DELTA,
                "sites": {"site-01": 1.0},
                "schedule": "decay",
                "decay": 0.5,
            },
        },
    )
    last = {site: lines[-2]["spends"][0] for site, lines in releases(run.path).items()}
    for site, spend in last.items():
        wanted = 1.0 if site == "site-01" else 4.0
        assert 0.98 * wanted <= spend["epsilon"] <= wanted
    noises = [line["spends"][0]["events"][0][0] for line in releases(run.path)["site-02"][:3]]
    assert noises[1] == pytest.approx(noises[0] / 2) and noises[2] == pytest.approx(noises[0] / 4)


def test_a_site_whose_budget_is_used_up_sends_back_what_it_received(tiny, releases):
    run = tiny(run=RUN, model=GROUP, **behind("client-dp", turns=2))
    for lines in releases(run.path).values():
        assert [bool(line.get("spends")) for line in lines] == [True, True, False, False]
        assert 0.98 * 4.0 <= lines[1]["spends"][0]["epsilon"] <= 4.0
        assert lines[2]["guarantee"] == "nothing left"
    folder = run.path / "server" / "checkpoints"
    before, _ = read_tensors(folder / "round-00002.safetensors")
    after, _ = read_tensors(folder / "round-00003.safetensors")
    same = [n for n in before if n in after and before[n].shape == after[n].shape]
    assert same and all(torch.allclose(before[n], after[n]) for n in same)


def test_paper_dp_is_never_called_a_guarantee(tiny, releases):
    run = tiny(run=RUN, release={"defenses": ["paper-dp"]})
    text = "".join(f.read_text() for f in run.path.glob("sites/*/ledger.jsonl"))
    assert "formal:" not in text and '"spends"' not in text
    for lines in releases(run.path).values():
        assert all(line["guarantee"] == "empirical: no formal guarantee" for line in lines)
        assert lines[0]["defenses"][0]["figures"]["noise_l2"] > 0
    assert "refused" not in (run.path / "log.txt").read_text()
