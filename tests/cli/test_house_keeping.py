"""verify, forget and doctor."""

import pytest

from vitrail.cli.doctor import EXTRAS


@pytest.mark.parametrize("name", ["model.safetensors", "model.onnx"])
def test_an_exported_model_is_traced_to_its_run(tiny, command, tmp_path, name):
    if name.endswith("onnx"):
        pytest.importorskip("onnxruntime")
    run = tiny(model={"backbone": "small-cnn", "width": 4}, run={"rounds": 1})
    assert command("export", str(run.path), "--out", name)[0] == 0
    code, out, err = command("verify", name, str(run.path))
    assert code == 0 and "DIFFERS" not in out, out + err
    assert out.count("ledger of site-") == 4
    # A ledger that grew is the same ledger; one that was changed is not.
    ledger = run.path / "sites" / "site-01" / "ledger.jsonl"
    lines = ledger.read_text().splitlines()
    ledger.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    code, out, err = command("verify", name, str(run.path))
    assert code != 0 and "DIFFERS  ledger of site-01" in out
    ledger.write_text("\n".join(lines) + "\n")
    other = tiny("other", model={"backbone": "small-cnn", "width": 4}, run={"rounds": 1, "seed": 9})
    code, out, err = command("verify", name, str(other.path))
    assert code != 0 and "DIFFERS  run" in out
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b" ")
    code, out, err = command("verify", name, str(run.path))
    assert code != 0 and "DIFFERS  file" in out


def test_verify_needs_the_card(tiny, command, tmp_path):
    run = tiny(model={"backbone": "small-cnn", "width": 4}, run={"rounds": 0})
    code, _, err = command("verify", "nothing.safetensors", str(run.path))
    assert code != 0 and "card" in err


def test_forget_asks_first_and_deletes_only_runs(tiny, command, tmp_path, own_cache):
    run = tiny(run={"rounds": 0})
    code, out, err = command("forget", str(run.path))
    assert code == 0 and "would delete" in out and "nothing was deleted" in err
    assert run.path.exists()
    (tmp_path / "photos").mkdir()
    code, _, err = command("forget", str(run.path), str(tmp_path / "photos"), "--yes")
    assert code != 0 and "not a run folder" in err and run.path.exists()
    code, out, err = command("forget", str(run.path), "--yes")
    assert code == 0 and "what remains" in err and not run.path.exists()
    (own_cache / "features").mkdir(exist_ok=True)
    assert command("forget", "--cache", "--yes")[0] == 0 and not own_cache.exists()
    assert command("forget")[0] != 0


def test_doctor_knows_every_extra(command, project_extras):
    code, out, _ = command("doctor")
    assert code == 0 and "vitrail" in out and "cores" in out and "GB free" in out
    assert set(EXTRAS) == project_extras
    for extra in EXTRAS:
        assert f"[{extra}]" in out


@pytest.fixture
def project_extras():
    import tomllib
    from pathlib import Path

    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    return set(extras) - {"dev", "docs", "all"}


@pytest.mark.parametrize("private", [False, True])
def test_a_dossier_tells_what_left_and_marks_what_it_cannot_know(tiny, command, tmp_path, private):
    budget = {"defenses": ["client-dp"], "client-dp": {"epsilon": 8.0, "delta": 1e-3}}
    run = tiny(release=budget if private else {}, run={"rounds": 1})
    code, _, err = command("dossier", str(run.path), "--out", "dossier.html")
    assert code == 0 and "for you to say" in err
    page = (tmp_path / "dossier.html").read_text()
    for word in ("Purpose", "Recipients", "What left each site", "Retention", "to be filled in"):
        assert word in page
    assert all(site in page for site in run.sites)
    assert ("formal" in page) and (("nothing by a proof" in page) is not private)
    assert command("dossier", str(run.path), "--out", "dossier.pdf")[0] != 0


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"name": "fedxds", "warmup": 1}, "copies of some were shared"),
        ({"name": "centralized"}, "in one place"),
        ({"name": "fedavg"}, "the coordinator never holds one"),
    ],
)
def test_a_dossier_says_where_images_are(tiny, command, tmp_path, method, words):
    run = tiny(method=method)
    assert command("dossier", str(run.path), "--out", "dossier.html")[0] == 0
    assert words in (tmp_path / "dossier.html").read_text()
