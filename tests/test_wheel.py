"""The wheel has what the package needs, and works from a folder with nothing of a checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("hatchling", reason="THE WHEEL IS NOT TESTED: the dev extra brings hatchling")
pytestmark = [pytest.mark.very_slow, pytest.mark.timeout(1200)]
ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
DATA = (  # one file of each kind that is not Python
    "vitrail/py.typed",
    "vitrail/presets/demo.toml",
    "vitrail/presets/methods/fedavg.toml",
    "vitrail/report/assets/script.js",
    "vitrail/report/assets/style.css",
    "vitrail/templates/method.py.txt",
)


def call(*words, cwd, **options):
    """A command with nothing of this checkout in its surroundings."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**kept, "OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    built = call(*pip, "--wheel-dir", folder, ROOT, cwd=folder)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("vitrail-*.whl")
    return file


@pytest.fixture(scope="module")
def vitrail(wheel, tmp_path_factory):
    """A function: call the installed command in an empty folder.

    The environment is new; only the libraries below the package come from the one that runs the
    tests, by a path that no editable install stands on.
    """
    home, work = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("anywhere")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    words = ("--python", python, "install", "--no-deps", "--no-index", wheel)
    installed = call(sys.executable, "-m", "pip", *words, cwd=work)
    assert installed.returncode == 0, installed.stderr
    (site,) = home.glob("lib/python*/site-packages")
    paths = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    libraries = dict.fromkeys((*paths, *_inherited()))
    (site / "libraries.pth").write_text("\n".join(libraries) + "\n")

    where = call(python, "-c", "import vitrail; print(vitrail.__file__)", cwd=work)
    assert where.stdout.startswith(str(home)), (where.stdout, where.stderr)

    def command(*words):
        return call(home / "bin" / "vitrail", *words, cwd=work)

    command.folder = work
    return command


def _inherited():
    """Other folders of installed libraries that this interpreter knows; no checkout is one."""
    return [path for path in sys.path if path.endswith("-packages")]


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    inside = {name for name in names if ".dist-info/" not in name}
    files = (path for path in (SRC / "vitrail").rglob("*") if path.is_file())
    wanted = {path.relative_to(SRC).as_posix() for path in files if "__pycache__" not in path.parts}
    assert inside == wanted
    assert wanted >= set(DATA)
    assert {name.split("/")[0] for name in inside} == {"vitrail"}, "no tests, no experiments"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_from_images_to_a_report_with_nothing_of_the_checkout(vitrail):
    draw = np.random.Generator(np.random.PCG64(3))
    for number in range(40):
        label = ("dark", "light")[number % 2]
        pixels = draw.integers(0, 120, (24, 24, 3)) + 120 * (number % 2)
        file = vitrail.folder / "photos" / label / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(file)
    small = ("--set", "run.rounds=2", "--set", "model.width=4", "--set", "run.workers=2")
    for words in (
        ("init", "photos"),
        ("run", "photos.toml", "--out", "first", *small),
        ("report", "first"),
        ("new-method", "mine"),
        ("run", "mine.toml", "--out", "second"),
    ):
        done = vitrail(*words)
        assert done.returncode == 0, (words, done.stderr)
    page = (vitrail.folder / "first" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "<style>" in page and "<script>" in page
    assert (vitrail.folder / "second" / "server" / "finished").exists()


def test_a_table_of_the_docs_says_that_it_needs_a_checkout(vitrail):
    done = vitrail("reproduce", "subspaces")
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    if not (SRC / "vitrail" / "presets" / "reproduce").exists():  # the grids are experiments'
        assert "checkout" in done.stderr
