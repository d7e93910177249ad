"""Rehearsals and grids: the undefended row, the noise that was added, the page."""

import json
from html.parser import HTMLParser

import pytest
import torch

from vitrail.attack import Budget
from vitrail.attack.choice import Choice
from vitrail.attack.leakage_grid import (
    Guarded,
    LeakageOptions,
    find_largest_epsilon,
    load_leakage,
    make_release_sections,
)
from vitrail.attack.rehearsal import RehearsalSetup, draw_rows, rehearse
from vitrail.attack.run_attacks import run_attacks
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import ConfigError
from vitrail.release.accounting.promise import NO_GUARANTEE
from vitrail.rng import derive_server_key
from vitrail.runs.reopen import load_run_federation

FILE = """
[data]
image_size = 16
aviary.images = 60
aviary.classes = 3
[partition]
sites = 3
[model]
backbone = "small-cnn"
width = 8
[run]
rounds = 1
batch_size = 8
seed = 5
[leakage]
defenses = ["white-noise"]
energies = [0.5, 2.0]
attacks = ["ig", "ig-adaptive"]
images = 2
iterations = 3
rounds = 2
"""


class Page(HTMLParser):
    """Counts pictures; every one has words, nothing comes from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.pictures = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        assert "http" not in told.get("src", "") and tag != "script"
        if tag == "img":
            assert told["alt"] and told["src"].startswith("data:image/png")
            self.pictures += 1


def test_a_grid_has_the_undefended_row_and_the_noise_that_was_asked_for(tmp_path, command):
    (tmp_path / "grid.toml").write_text(FILE)
    code, out, err = command("leakage", "grid.toml", "--out", "grid", "-q")
    assert code == 0, err
    found = json.loads((tmp_path / "grid" / "leakage.json").read_text())
    rows = {row["defense"]: row for row in found["defenses"]}
    assert list(rows) == ["none", "white-noise at 0.5", "white-noise at 2"]
    assert rows["none"]["energy"] == 0.0
    assert rows["white-noise at 0.5"]["energy"] == pytest.approx(0.5, rel=0.02)
    assert rows["white-noise at 2"]["energy"] == pytest.approx(2.0, rel=0.02)
    for row in rows.values():
        names = [attack["attack"] for attack in row["attacks"]]
        assert names[0] == "ig" and "ig-adaptive" in names
        assert 0 <= row["accuracy"] <= 1
        assert row["attacks"][0]["threat"]["defense"] == (
            [] if row is rows["none"] else ["white-noise"]
        )
    assert (
        0 < rows["white-noise at 2"]["fidelity"] <= 1 or "fidelity" not in rows["white-noise at 2"]
    )
    assert [row["attack"] for row in found["references"]] == ["random image", "mean image"]
    assert Page((tmp_path / "grid" / "leakage.html").read_text()).pictures >= 2 + 3 * 2 * 2
    assert "mean image" in out and "white-noise at 2" in out
    drawn = {path.name for path in (tmp_path / "grid" / "figures").iterdir()}
    assert drawn == {"accuracy.png", "psnr-of-ig-db.png", "psnr-of-ig-adaptive-db.png"}
    code, again, _ = command("leakage", "grid.toml", "--out", "grid", "-q")
    assert code == 0 and again == out  # nothing is trained or searched again
    code, _, err = command("leakage", "grid.toml", "--out", "grid", "-q", "--set", "run.seed=6")
    assert code == 2 and "another configuration" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILE.replace("[leakage]", "[leek]"), "no \\[leakage\\] section|unknown"),
        (FILE.replace("energies", "energy"), "energies"),
        (FILE.replace("images = 2", "images = 0"), "leakage.images"),
        (FILE.replace('"white-noise"', '"wite-noise"'), "white-noise"),
    ],
)
def test_bad_files(text, words, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_leakage(path)


def test_a_rehearsal_has_the_noise_of_the_run_it_stands_for(tiny):
    """Refuted if few rehearsed images or rounds change what a defense adds."""
    run = tiny(
        run={"rounds": 6, "batch_size": 8},
        model={"norm": "group"},
        release={"defenses": ["client-dp"], "client-dp": {"epsilon": 4.0, "delta": 1e-3}},
    )
    federation = load_run_federation(run)
    stage = RehearsalSetup(images=2, rounds=2)
    key = derive_server_key(1).at("test")
    made = rehearse(run, federation, draw_rows(federation, stage, key), stage, key)
    ledger = SiteFolder(run.path, run.sites[0]).ledger().lines()
    noise = next(line for line in ledger if line["kind"] == "budget")["noise"]
    numbers = sum(t[0].numel() for t in made.once.turns[0].released.values())
    change = noise * numbers**0.5  # the clip is 1, and the change itself is far shorter
    found = [
        float(torch.cat([(t[0] - turn.sent[n]).flatten() for n, t in turn.released.items()]).norm())
        for turn in made.often.turns
    ]
    assert found == [pytest.approx(change, rel=0.1)] * 2


def test_a_run_is_as_private_as_its_least_private_site(tiny):
    run = tiny(
        run={"rounds": 3, "batch_size": 8},
        model={"norm": "group"},
        release={"defenses": ["client-dp"], "client-dp": {"delta": 1e-3, "turns": 1}},
    )
    epsilon, words = find_largest_epsilon(
        run
    )  # the budget is used up after a round; the rest sent nothing new
    assert epsilon == pytest.approx(1.0, rel=0.01) and words.startswith("formal")
    ledger = SiteFolder(run.path, run.sites[-1]).ledger()
    last = next(line for line in ledger.lines() if line["kind"] == "release")
    ledger.write({**last, "guarantee": NO_GUARANTEE, "spends": []})
    assert find_largest_epsilon(run) == (None, NO_GUARANTEE)


@pytest.mark.parametrize("name", ["match", "membership"])
def test_an_attack_that_gets_no_image_back_is_refused_before_anything_is_trained(
    tmp_path, command, name
):
    (tmp_path / "grid.toml").write_text(FILE.replace('"ig", "ig-adaptive"', f'"{name}"'))
    code, _, err = command("leakage", "grid.toml", "--out", "grid", "-q")
    assert code == 2 and "gets no image back" in err and f"--attacks {name}" in err
    assert not (tmp_path / "grid" / "none").exists()


def test_more_images_than_the_sites_have(tmp_path, command):
    (tmp_path / "grid.toml").write_text(FILE)
    code, _, err = command("leakage", "grid.toml", "-q", "--set", "leakage.images=500")
    assert code == 2 and "500 images are asked for" in err


def test_rows_of_release_sections():
    options = LeakageOptions(
        defenses=(
            "none",
            "prune",
            Guarded(name="both", release={"defenses": ["prune", "quantize"]}),
        ),
        energies=(1.0,),
    )
    assert make_release_sections(options) == {
        "none": {"defenses": []},
        "prune": {"defenses": ["prune"]},  # not additive: no energy
        "both": {"defenses": ["prune", "quantize"]},
    }


def test_attack_from_the_command_line(recorded, command, tmp_path):
    run = recorded().path
    code, out, err = command(
        "attack", run, "--attacks", "ig", "--images", 2, "--iterations", 2,
        "--json", "a.json", "--out", "a.html",
    )  # fmt: skip
    assert code == 0, err
    assert "mean image" in out and "labels read off the update" in out
    assert json.loads((tmp_path / "a.json").read_text())["rows"][2]["attack"] == "ig"
    assert Page((tmp_path / "a.html").read_text()).pictures == 2 * 4
    code, _, err = command("attack", run, "--json", "a.json")
    assert code == 2 and "exists" in err
    code, _, err = command("attack", run, "--attacks", "ig", "--images", 99)
    assert code == 2 and "99 images are asked for" in err and "\n" not in err.strip()
    code, out, _ = command("attack", run, "--attacks", "list")
    assert code == 0 and "gifd" in out and "membership" in out
    code, _, err = command("attack", run, "--attacks", " , ")
    assert code == 2


def test_an_epsilon_stands_only_where_all_of_an_update_is_covered(tmp_path, recorded):
    release = {"defenses": ["client-dp"], "client-dp": {"epsilon": 8.0}}
    plain = recorded()
    assert find_largest_epsilon(plain) == (None, NO_GUARANTEE)
    private = recorded(
        "private",
        release=release,
        partition={"kind": "iid", "sites": 3, "minimum": 1, "test_fraction": 0.0},
        run={"rounds": 1, "batch_size": 4, "record_updates": True},
    )
    epsilon, words = find_largest_epsilon(private)
    assert epsilon == pytest.approx(8.0, rel=0.05) and "empirical" not in words


@pytest.mark.parametrize("name", ["client-dp", "dp-sgd", "paper-dp", "tip", "quantize"])
def test_attacks_run_behind_every_kind_of_defense(name, recorded):
    run = recorded(
        f"behind-{name}",
        release={"defenses": [name]},
        partition={"kind": "iid", "sites": 3, "minimum": 1, "test_fraction": 0.0},
        run={"rounds": 1, "batch_size": 4, "record_updates": True},
    )
    found = run_attacks(run, ["ig-adaptive"], Choice(images=2), Budget(iterations=2))
    assert found.rows[2].threat.defense == (name,)
    assert all(s.psnr > 0 for s in found.rows[2].scores)
