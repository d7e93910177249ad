"""A full disk, a changed file, a second process: one sentence, and nothing finished is lost."""

import errno
import hashlib
import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

import vitrail
import vitrail.engine.storage.run_folder as folders
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import RunError, VitrailError
from vitrail.files import read_tensors


class Stop(Exception):
    """What the caller stops a run with."""


def stop_after(round_):
    def on_round(progress):
        if progress.round == round_:
            raise Stop

    return on_round


def fingerprint(path):
    return {
        str(file.relative_to(path)): hashlib.blake2b(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize(
    "code, words", [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only")]
)
@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_a_full_disk_or_read_only_folder(name, code, words, tiny, tmp_path, monkeypatch, same_bits):
    whole = tiny("whole", method={"name": name}, run={"rounds": 4})
    real = os.fsync
    after = {"armed": False}

    def fsync(handle):
        if after["armed"]:
            raise OSError(code, os.strerror(code))
        real(handle)

    def on_round(progress):
        after["armed"] = progress.round >= 2

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RunError, match=words) as err:
        tiny("run", on_round, method={"name": name}, run={"rounds": 4})
    assert "intact" in str(err.value) and "vitrail resume" in str(err.value)
    monkeypatch.undo()
    checkpoints = Checkpoints(tmp_path / "run" / "server")
    assert checkpoints.newest() == 2
    assert read_tensors(checkpoints.path(2))[1]["round"] == 2
    assert not list((tmp_path / "run").rglob(".*.tmp"))
    assert same_bits(vitrail.resume(tmp_path / "run").path, whole.path)


@pytest.mark.very_slow
def test_a_disk_that_is_full_for_real(tiny, tiny_config, tmp_path, same_bits):
    """The kernel itself refuses to let files grow beyond a limit below one checkpoint."""
    whole = tiny("whole")
    code = "import json, sys, vitrail; vitrail.run(json.loads(sys.argv[1]), sys.argv[2])"
    paths = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(tiny_config()), str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": paths},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "RunError" in done.stderr and "larger than this disk" in done.stderr
    assert Checkpoints(tmp_path / "run" / "server").newest() is None
    assert same_bits(vitrail.resume(tmp_path / "run").path, whole.path)


def test_a_run_folder_that_exists_is_never_touched(tiny, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("four years")
    with pytest.raises(RunError, match="not empty"):
        tiny("run")
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.txt"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError):
        tiny("file")
    (tmp_path / "empty").mkdir()
    assert tiny("empty", run={"rounds": 0}).finished


@pytest.mark.parametrize(
    "old, new",
    [
        ("rounds = 3", "rounds = 4"),
        ('name = "fedavg"', 'name = "fedprox"'),
        ("seed = 5", "seed = 6"),
    ],
)
def test_resume_with_a_changed_configuration(old, new, tiny, tmp_path):
    with pytest.raises(Stop):
        tiny("run", stop_after(1))
    file = tmp_path / "run" / "config.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    before = fingerprint(tmp_path / "run" / "server")
    with pytest.raises(RunError, match="changed since it was started"):
        vitrail.resume(tmp_path / "run")
    assert fingerprint(tmp_path / "run" / "server") == before
    file.write_text(file.read_text().replace(new, old, 1))
    assert vitrail.resume(tmp_path / "run").finished


@pytest.mark.slow
def test_the_number_of_workers_may_change(tiny, tmp_path, same_bits):
    with pytest.raises(Stop):
        tiny("run", stop_after(1))
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace("workers = 1", "workers = 2", 1))
    assert same_bits(vitrail.resume(tmp_path / "run").path, tiny("whole").path)


def test_resume_with_changed_images(tmp_path, tiny_config):
    draw = np.random.Generator(np.random.PCG64(2))
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for i in range(12):
            pixels = draw.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / label / f"{i}.png")
    config = tiny_config(partition={"kind": "iid", "sites": 2, "minimum": 2})
    config["data"] = {"source": "folder", "path": str(tmp_path / "pets"), "image_size": 16}
    with pytest.raises(Stop):
        vitrail.run(config, tmp_path / "run", stop_after(1))
    file = tmp_path / "pets" / "cat" / "3.png"
    before = file.read_bytes()
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(file)
    with pytest.raises(RunError, match="the data of this run changed"):
        vitrail.resume(tmp_path / "run")
    file.write_bytes(before)
    assert vitrail.resume(tmp_path / "run").finished


def test_resume_of_a_finished_run_changes_nothing(tiny):
    run = tiny("run", method={"name": "scaffold"})
    before = fingerprint(run.path)
    vitrail.resume(run.path)
    assert fingerprint(run.path) == before


def test_resume_and_load_of_what_is_no_run(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "nowhere"):
        for call in (vitrail.resume, vitrail.load):
            with pytest.raises(RunError, match="not a run folder"):
                call(path)
    assert not (tmp_path / "nowhere").exists() and not list((tmp_path / "empty").iterdir())


def test_two_processes_do_not_work_in_one_folder(tiny, tmp_path, monkeypatch):
    with pytest.raises(Stop):
        tiny("run", stop_after(1))
    holder = RunFolder(tmp_path / "run")
    holder.lock()
    monkeypatch.setattr(folders, "_WAIT_SECONDS", 0.2)
    before = fingerprint(tmp_path / "run")
    with pytest.raises(RunError, match="another process"):
        vitrail.resume(tmp_path / "run")
    assert fingerprint(tmp_path / "run") == before
    holder.unlock()
    assert vitrail.resume(tmp_path / "run").finished


def test_a_broken_checkpoint_and_a_lost_state_are_named(tiny, tmp_path):
    with pytest.raises(Stop):
        tiny("run", stop_after(2), method={"name": "scaffold"})
    newest = Checkpoints(tmp_path / "run" / "server").path(2)
    whole = newest.read_bytes()
    newest.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(VitrailError, match=newest.name):
        vitrail.resume(tmp_path / "run")
    newest.write_bytes(whole)
    for file in (tmp_path / "run" / "sites").rglob("round-00002.safetensors"):
        file.unlink()
    with pytest.raises(RunError, match="state of round 2 is gone"):
        vitrail.resume(tmp_path / "run")


def test_a_finished_run_with_an_edited_configuration_is_refused(tiny):
    run = tiny()
    file = run.path / "config.toml"
    file.write_text(file.read_text().replace("rounds = 3", "rounds = 9"))
    with pytest.raises(RunError, match="config of this run changed"):
        vitrail.resume(run.path)


def test_other_weights_are_refused_at_a_resume(tiny, tmp_path, tiny_config):
    start = tiny("donor", run={"rounds": 0}).model().network.backbone
    weights = tmp_path / "w.safetensors"
    save_file(start.state_dict(), weights)

    def stop(progress):
        raise KeyboardInterrupt

    changes = {"model": {"weights": str(weights), "frozen": True}}
    with pytest.raises(KeyboardInterrupt):
        tiny("run", on_round=stop, **changes)
    save_file(
        {n: t + 1 if t.is_floating_point() else t for n, t in start.state_dict().items()}, weights
    )
    with pytest.raises(RunError, match="weights of this run changed"):
        vitrail.resume(tmp_path / "run")
