"""What all tests share: one thread, a cache folder of their own, and a federation of seconds."""

import copy
import json
import sys
from pathlib import Path

import pytest
import torch

import vitrail
from vitrail.audit.counterfactual.effects import CoveringEffect
from vitrail.audit.counterfactual.regions import Region
from vitrail.audit.finding import Finding
from vitrail.cli import main
from vitrail.config import parse
from vitrail.engine.run import start
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.workers.processes import WorkerProcesses
from vitrail.files import read_tensors

torch.set_num_threads(1)
pytest_plugins = ["tests.browser_fixtures"]

TINY = {
    "data": {"image_size": 16, "aviary": {"images": 64, "classes": 3}},
    "partition": {"kind": "dirichlet", "alpha": 1.0, "sites": 4, "minimum": 6},
    "model": {"backbone": "resnet8", "width": 8},
    "method": {"name": "fedavg"},
    "run": {"rounds": 3, "batch_size": 8, "device": "cpu", "seed": 5},
}
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test reads or fills the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("VITRAIL_CACHE", str(folder))
    return folder


def _merged(base, changes):
    found = copy.deepcopy(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _merged(found[key], value) if nested else copy.deepcopy(value)
    return found


@pytest.fixture(scope="session")
def tiny_config():
    """A function: the tiny configuration with some sections changed, as a new dictionary."""
    return lambda **changes: _merged(TINY, changes)


@pytest.fixture(scope="session")
def crew():
    """Workers kept from one test to the next: each spends seconds on its imports."""
    with WorkerProcesses() as kept:
        yield kept


@pytest.fixture
def tiny(tmp_path, tiny_config, crew):
    """A function: run four small sites in about a second; `out` names the folder."""

    def run(out="run", on_round=None, **changes):
        config = tiny_config(**changes)
        if config["run"].get("workers", 1) > 1:
            start(parse(config, Path.cwd()), tmp_path / out, on_round, crew)
            return vitrail.load(tmp_path / out)
        return vitrail.run(config, tmp_path / out, on_round)

    return run


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """A function: call `vitrail` with some words; code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["vitrail", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code or 0, told.out, told.err

    return call


@pytest.fixture(scope="session")
def run_once(tmp_path_factory, tiny_config):
    """A function: the undisturbed run of a name and its sections, made once."""
    made = {}

    def get(name, sections):
        key = json.dumps([name, sections], sort_keys=True)
        if key not in made:
            out = tmp_path_factory.mktemp("plain") / name
            made[key] = vitrail.run(tiny_config(**sections), out)
        return made[key]

    return get


@pytest.fixture(scope="session")
def ending():
    """A function: every tensor a run ended with, the server's and those the sites keep."""

    def read(path):
        checkpoints = Checkpoints(Path(path) / "server")
        tensors, meta = read_tensors(checkpoints.path(checkpoints.newest()))
        for site, round_ in meta["accepted"].items():
            file = Path(path) / "sites" / site / "state" / f"round-{round_:05d}.safetensors"
            tensors |= {f"{site}/{name}": t for name, t in read_tensors(file)[0].items()}
        return tensors

    return read


@pytest.fixture(scope="session")
def same_bits(ending):
    """A function: whether two runs ended with the same tensors to the bit."""

    def compare(one, other):
        a, b = ending(one), ending(other)
        return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)

    return compare


@pytest.fixture(scope="session")
def releases():
    """A function: the releases in each site's ledger."""

    def read(path):
        found = {}
        for file in sorted(Path(path).glob("sites/*/ledger.jsonl")):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            found[file.parent.name] = [line for line in lines if line["kind"] == "release"]
        return found

    return read


@pytest.fixture
def shared_data():
    """The folder with real data sets beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"REAL DATA NOT TESTED: there is no folder {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def project():
    """The root of the project."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def finding():
    """A function: what an audit could have found about a class of a site."""

    def make(site, label, score, p, kind="color", without=0.1, flipped=0.4, **more):
        boxes = torch.tensor([[2, 3, 6, 8]] * 2) if kind == "place" else None
        return Finding(
            site=site,
            label=label,
            score=score,
            relies=4.0,
            effect=2 * score,
            limit=2.0,
            p_value=p,
            raw_p=p,
            verdict="clear" if p >= 0.05 else "biased" if score > 1 else "differs",
            place=Region(kind, boxes),
            box=(20, 30, 60, 80) if kind == "place" else None,
            where="the lower left of the image",
            swapped={"local": 1.5, "shared": -0.25},
            flipped={"local": flipped, "shared": -0.004},
            covered={
                "local": CoveringEffect(0.9, without, 1.0),
                "shared": CoveringEffect(0.8, 0.7, 0.1),
            },
            rows=(0, 1),
            **{"family": "tone", **more},
        )

    return make
