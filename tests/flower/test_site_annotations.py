"""What people drew on a site's images holds in its runs: from the first turn, and to the end."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vitrail.config import load
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.site.site_server import SiteServer
from vitrail.runs.opened_run import Run

from .conftest import SITES, Loop

SHARING = {"method": {"name": "fedxds", "warmup": 1}, "run": {"rounds": 3, "batch_size": 8}}


def draw(home, *lines):
    home.folder.mkdir(parents=True, exist_ok=True)
    (home.folder / "annotations.json").write_text(json.dumps({"annotations": list(lines)}))


def list_names(home, birds):
    rows = (birds.root / f"{home.name}.csv").read_text().splitlines()[1:]
    return [row.split(",")[0] for row in rows if row.endswith("train")]


@pytest.fixture
def sections(birds):
    return {"method": SHARING["method"], "run": {**birds.terms["run"], **SHARING["run"]}}


def test_an_unticked_image_is_never_shared_and_a_region_never_counts(birds, tmp_path, sections):
    homes = {s: birds.home(s, tmp_path / "homes") for s in SITES}
    names = list_names(homes["east"], birds)
    region = {"box": [0.0, 0.0, 0.5, 0.5]}
    draw(homes["east"], {"image": names[0], "use": "training"}, region)
    loop = Loop({s: SiteServer(homes[s]) for s in SITES})
    run_federation(loop, birds.coordinator(**sections), tmp_path / "out", len(SITES))
    shared = {r["site"]: r["shared_images"] for r in Run(tmp_path / "out").rows()
              if r.get("shared_images")}  # fmt: skip
    assert shared["east"] == len(names) - 1
    assert shared["west"] == len(list_names(homes["west"], birds))
    folder = next((homes["east"].folder / "runs").iterdir())
    kept = load(folder / "config.toml", stored=True).config.data.annotations
    assert [one.use for one in kept] == ["training", "nothing"]
    assert names[0] not in (tmp_path / "out" / "config.toml").read_text()  # stays at the site
    assert names[0] not in "".join(map(repr, loop.heard))


def test_what_is_drawn_while_the_operator_reads_counts(birds, tmp_path, sections):
    homes = {s: birds.home(s, tmp_path / "homes") for s in SITES}
    east, name = homes["east"], list_names(homes["east"], birds)[0]

    def read_and_untick(run, terms, lines, patience):
        draw(east, {"image": name, "use": "training"})
        return True

    object.__setattr__(east, "wait", read_and_untick)
    loop = Loop({s: SiteServer(homes[s]) for s in SITES})
    run_federation(loop, birds.coordinator(**sections), tmp_path / "out", len(SITES))
    shared = {r["site"]: r["shared_images"] for r in Run(tmp_path / "out").rows()
              if r.get("shared_images")}  # fmt: skip
    assert shared["east"] == len(list_names(east, birds)) - 1


def test_a_run_goes_on_with_what_it_began_with(birds, tmp_path, sections):
    homes = {s: birds.home(s, tmp_path / "homes") for s in SITES}
    draw(homes["east"], {"box": [0.0, 0.0, 0.5, 0.5]})
    loop = Loop({s: SiteServer(homes[s]) for s in SITES})

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_federation(loop, birds.coordinator(**sections), tmp_path / "out", 3, on_round=stop)
    draw(homes["east"], {"box": [0.5, 0.5, 1.0, 1.0]})  # for the next run
    fresh = Loop({s: SiteServer(homes[s]) for s in SITES})
    run_federation(fresh, birds.coordinator(**sections), tmp_path / "out", 3)
    folder = next((homes["east"].folder / "runs").iterdir())
    kept = load(folder / "config.toml", stored=True).config.data.annotations
    assert np.allclose(kept[0].box, (0.0, 0.0, 0.5, 0.5)) and len(kept) == 1
    assert Run(tmp_path / "out").finished
