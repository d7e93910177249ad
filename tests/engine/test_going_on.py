"""More rounds, a warm start, rates that change over rounds, and a site that withdraws."""

import math

import pytest
import torch
from tests.methods.test_right_answers import SMOOTH, Oracle

import vitrail
from vitrail.config.schema import Optimizer
from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors
from vitrail.local.rate_schedule import compute_rate_share
from vitrail.runs.ledgers import read_ledgers


def snapshot(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedper", "ditto", "fedadam", "myth-gm"])
def test_a_run_that_goes_on_ends_where_a_longer_one_does(name, tiny, same_bits, tmp_path):
    own = {"warm_epochs": 1, "last_epochs": 1} if name == "myth-gm" else {}
    config = {
        "method": {"name": name, **own},
        "model": {"prototypes": {"per_class": 2, "depth": 8}},
        "run": {"participation": 0.75, "dropout": 0.2, "local_reference": name == "fedavg"},
    }
    short = tiny("short", **{**config, "run": {**config["run"], "rounds": 2}})
    before = snapshot(short.path)
    longer = vitrail.extend(short.path, 1, tmp_path / "longer")
    whole = tiny("whole", **config)
    assert longer.finished and longer.round == 3
    assert same_bits(longer.path, whole.path)
    assert snapshot(short.path) == before  # the old folder is untouched

    def without_clock(rows):
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    assert without_clock(longer.rows()) == without_clock(whole.rows())


def test_a_longer_run_can_go_on_again_and_its_ledgers_hold(tiny, same_bits, tmp_path, command):
    short = tiny("short", run={"rounds": 1})
    once = vitrail.extend(short.path, 1)
    assert once.path.name == "short-longer"
    twice = vitrail.extend(once.path, 1)
    assert same_bits(twice.path, tiny("whole").path)
    code, out, err = command("ledger", str(twice.path), "--verify")
    assert code == 0, out + err
    kinds = [line["kind"] for line in read_ledgers(twice.path).sites[0].lines]
    assert kinds.count("continue") == 2


def test_what_cannot_go_on_says_why(tiny, tmp_path):
    run = tiny("cosine", optimizer={"schedule": "cosine"}, run={"rounds": 2})
    with pytest.raises(RunError, match="another one in a longer run"):
        vitrail.extend(run.path, 1, tmp_path / "no")
    budget = {"defenses": ["client-dp"], "client-dp": {"epsilon": 8.0, "delta": 1e-3}}
    private = tiny("private", release=budget, run={"rounds": 1})
    with pytest.raises(RunError, match="noise of this run"):
        vitrail.extend(private.path, 1, tmp_path / "no")
    with pytest.raises(ConfigError, match="at least 1 round"):
        vitrail.extend(run.path, 0, tmp_path / "no")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("kind", ["cosine", "linear", "step", "constant"])
@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_rates_follow_the_formula(kind, rounds):
    settings = Optimizer(schedule=kind, final_share=0.2, step_rounds=3, step_share=0.5)
    for number in range(1, rounds + 1):
        way = (number - 1) / max(1, rounds - 1)
        literal = {
            "constant": 1.0,
            "cosine": 0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * way)),
            "linear": 0.2 + 0.8 * (1 - way),
            "step": 0.5 ** [0, 0, 0, 1, 1, 1, 2][number - 1],
        }[kind]
        assert compute_rate_share(settings, number, rounds) == pytest.approx(literal)


def test_a_schedule_reaches_the_steps(tiny, tiny_config, ending):
    config = {**SMOOTH, "optimizer": {"lr": 0.1, "schedule": "linear", "final_share": 0.1}}
    o = Oracle(tiny_config(**config))
    x = o.start
    for r in range(1, o.run.rounds + 1):
        rate, found = 0.1 * (1 - 0.9 * (r - 1) / 3), {}
        for site in o.chosen(r):
            w = x.clone()
            for batch in o.batches(site, r):
                w = w - rate * o.gradient(w, batch)
            found[site] = w
        x = o.mean(found)
    o.close_to(x, ending(tiny(**config).path))


def test_a_warm_start_is_where_the_other_run_ended(tiny, tmp_path, ending):
    first = tiny("first")
    newest = first.path / "server" / "checkpoints" / "round-00003.safetensors"
    by_folder = tiny("folder", model={"start": str(first.path)}, run={"rounds": 1})
    by_file = tiny("file", model={"start": str(newest)}, run={"rounds": 1})
    start = read_tensors(by_folder.path / "server" / "checkpoints" / "round-00000.safetensors")[0]
    end = ending(first.path)
    assert all(torch.equal(start[name], end[name]) for name in start)
    one, other = ending(by_folder.path), ending(by_file.path)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["model/head.weight"], end["model/head.weight"])
    network, _ = by_folder.extractor()  # a run is used without the one it started from
    first.path.rename(tmp_path / "elsewhere")
    by_folder.fill_start(network)
    assert torch.equal(network.state_dict()["head.weight"], end["model/head.weight"])


def test_a_warm_start_that_does_not_fit_names_the_tensor(tiny, tmp_path):
    first = tiny("first", run={"rounds": 0})
    with pytest.raises(ConfigError, match=r"is \[.*\] there and \[.*\] here"):
        tiny("wide", model={"start": str(first.path), "width": 16})
    with pytest.raises(ConfigError, match="no such run folder"):
        tiny("gone", model={"start": str(tmp_path / "nothing")})
    with pytest.raises(ConfigError, match="cannot be read"):
        tiny("text", model={"start": str(first.path / "config.toml")})


def test_a_site_that_withdraws_leaves_no_trace(tiny, same_bits, command, tmp_path):
    run = tiny()
    code, out, err = command("withdraw", str(run.path), "--site", "site-02", "--out", "again")
    assert code == 0 and "3 rounds again" in out and "what remains" in err
    again = vitrail.load(tmp_path / "again")
    assert again.sites == ("site-00", "site-01", "site-03")
    fresh = tiny("fresh", partition={"without": ["site-02"]})
    assert same_bits(again.path, fresh.path) and not same_bits(again.path, run.path)
    assert all(again.roster[site] == run.roster[site] for site in again.sites)
    with pytest.raises(RunError, match="no site 'site-9'"):
        vitrail.withdraw(run.path, "site-9")
