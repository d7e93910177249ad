"""What the docs tell people to write works: options exist, TOML makes runs, guides are followed."""

import glob
import json
import re
import shlex
import shutil
import tomllib

import click
import numpy as np
import pytest
import tomli_w
from PIL import Image

import vitrail
from vitrail.attack.leakage_grid import load_leakage
from vitrail.cli.option_reference import list_commands, make_reference_lines
from vitrail.config import parse
from vitrail.engine.plan import make_plan
from vitrail.sweep.cells import make_cells

COMMAND = re.compile(r"^ +(vitrail .*)$", re.M)
TOML = re.compile(r"^( *)```toml\n(.*?)^ *```", re.M | re.S)
SITES = {f"site-{n:02d}": 15 for n in range(4)}
CLASSES = ("airplane", "bird", "cat")


def pages(project):
    found = (project / "docs").rglob("*.md")
    return sorted([project / "README.md", project / "CONTRIBUTING.md", *found])


def read_commands(page):
    """The command lines of a page, without their remarks."""
    text = page.read_text(encoding="utf-8")
    return [shlex.split(line.split("  #")[0])[1:] for line in COMMAND.findall(text)]


def list_lines(project):
    return [
        (page.relative_to(project), line) for page in pages(project) for line in read_commands(page)
    ]


def test_the_reference_of_options_is_what_the_command_line_says(project):
    page = (project / "docs/reference/options.md").read_text(encoding="utf-8")
    assert page == "\n".join(make_reference_lines()), "run: python -m vitrail.cli.option_reference"
    assert "| `--site` |" in page.split("## `vitrail export")[1].split("##")[0]


def test_every_command_line_of_the_docs_is_one(project):
    """Each is parsed by the command itself; what it needs need not be there."""
    commands, lines = dict(list_commands()), list_lines(project)
    assert len(lines) > 80
    for page, line in lines:
        name = max((c for c in commands if " ".join(line).startswith(c)), key=len, default=None)
        assert name is not None, f"{page}: there is no command {' '.join(line)!r}"
        command, words = commands[name], line[len(name.split()) :]
        context = click.Context(command, info_name=name)
        try:
            values, rest, _ = command.make_parser(context).parse_args(args=list(words))
            for option in command.params:
                if isinstance(option.type, click.Choice) and values.get(option.name):
                    option.type.convert(values[option.name], option, context)
        except click.ClickException as err:
            pytest.fail(f"{page}: vitrail {' '.join(line)}: {err.format_message()}")
        many = any(p.nargs == -1 for p in command.params if isinstance(p, click.Argument))
        assert many or not rest, f"{page}: vitrail {' '.join(line)}: {rest}"


def read_blocks(page):
    return [tomllib.loads(text) for _, text in TOML.findall(page.read_text(encoding="utf-8"))]


def merge(one, other):
    both = dict(one)
    for key, value in other.items():
        inside = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merge(both[key], value) if inside else value
    return both


# What a block stands in: the file around it, where the page says or means more than BASE.
BASE = {"data": {"image_size": 32}, "model": {"backbone": "resnet8"}, "run": {"rounds": 4}}
TIP = {"release": {"defenses": ["tip"]}}
AROUND = {
    "explanation/poisoning.md": [{}],
    "explanation/rivals.md": [{"data": {"public": {}}}],
    "explanation/sharing.md": [{}],
    "how-to/attack-a-run.md": ["leakage", "leakage"],
    "how-to/debias-a-federation.md": [{"method": {"name": "myth-gm"}}],
    "how-to/go-on-with-a-run.md": [{}],
    "how-to/log-to-other-tools.md": [{}],
    "how-to/private-run.md": [
        {}, {"model": {"norm": "group"}, "release": {"defenses": ["dp-sgd"]}}, {}, {}, {},
    ],
    "how-to/put-a-defense-at-the-door.md": [
        {}, {}, merge(TIP, {"release": {"tip": {"sites": {"site-00": 0.5}}}}), {},
    ],
    "how-to/run-a-grid.md": [{}, {"sweep": {"seeds": [1], "methods": ["fedprox"]}}, {}, "grid"],
    "how-to/share-images.md": [{}],
    "how-to/write-a-data-source.md": ["plugin"],
    "tutorial/first-federation.md": [{}],
}  # fmt: skip


def plan(loaded):
    """Everything that is checked before the first image is read."""
    return make_plan(loaded, CLASSES, 3, SITES, 32)


def test_every_toml_block_of_the_docs_stands_in_the_table(project):
    found = {
        str(page.relative_to(project / "docs")): len(blocks)
        for page in pages(project)
        if (blocks := read_blocks(page))
    }
    assert found == {name: len(around) for name, around in AROUND.items()}


@pytest.mark.parametrize("name", AROUND)
def test_a_toml_block_of_the_docs_makes_a_run(name, project, tmp_path):
    for around, block in zip(AROUND[name], read_blocks(project / "docs" / name), strict=True):
        if around == "grid" or around == "plugin":
            continue  # files of `experiments/grids` and plug-ins have tests of their own
        if around == "leakage":
            (tmp_path / "grid.toml").write_text(tomli_w.dumps(merge(BASE, block)))
            assert len(load_leakage(tmp_path / "grid.toml").rows) > 1
            continue
        block.get("release", {}).get("tip", {}).pop("sites", None)
        loaded = parse(merge(merge(BASE, around), block), tmp_path)
        if "sweep" in block:
            for cell in make_cells(loaded)[:4]:
                plan(cell.loaded)
        elif loaded.config.data.public is None:
            plan(loaded)


# --- the guides, line by line -----------------------------------------------------------------

SMALL = {
    "data": {"image_size": 16, "aviary": {"images": 90, "classes": 3}},
    "partition": {"kind": "iid", "sites": 3},
    "model": {"backbone": "small-cnn", "width": 8, "prototypes": {"per_class": 1, "depth": 8}},
    "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
    "run": {"rounds": 2, "local_epochs": 1, "batch_size": 8, "device": "cpu", "seed": 5},
}
PLAIN = {**SMALL, "method": {"name": "fedavg"}}
PRIVATE = {
    "model": {"norm": "group"},
    "release": {"defenses": ["dp-sgd"], "dp-sgd": {"delta": 1e-3}},
}
TUNE = {"settings": 1, "rows": {"plain": {}}, "search": {"plain": {"optimizer.lr": [0.1]}}}
FILES = {  # what the guides call a file of the reader's own
    "tune.toml": merge(PLAIN, {"partition": {"validation": 0.2}, "tune": TUNE}),
    "mine.toml": PLAIN,
    "private.toml": merge(PLAIN, PRIVATE),
    "FILE.toml": {**PLAIN, "sweep": {"methods": ["fedavg", "scaffold"], "seeds": [1, 2]}},
    "share.toml": merge(PLAIN, {"method": {"name": "fedxds"}, "run": {"rounds": 3}}),
    "defenses.toml": {
        **PLAIN,
        "sweep": {"seeds": [1], "release": [{}, {"defenses": ["tip"], "energy": 0.5}]},
    },
    "grid.toml": {**PLAIN, "leakage": {"defenses": ["tip"], "attacks": ["ig"], "images": 2}},
}
ELSEWHERE = {  # the first words of lines that other tests play, and why they are not played here
    "reproduce": "hours, with data that is downloaded; tests/experiments",
    "serve": "does not end by itself; tests/live",
    "flower": "processes and ports; tests/flower",
    "attack runs/mine --attacks denoise": "needs a run that shares images; tests/attack",
    "attack RUN --attacks denoise": "needs a run that shares images; tests/attack",
    "explain north-site": "the folder of a real site; tests/flower/test_afterwards.py",
    "ledger north-site": "the folder of a real site; tests/flower/test_ledger_heads.py",
    "audit north-site": "the folder of a real site; tests/flower/test_afterwards.py",
    "budget north.site.toml": "the file of a real site; tests/flower/test_lifetime.py",
}
FEWER = {  # words that make a line small
    "attack": ["--iterations", "2", "--images", "2"],
    "leakage": ["--set", "leakage.iterations=2", "--set", "leakage.images=2"],
    "fidelity": ["--images", "6"],
    "run": ["--set", "run.rounds=2", "--set", "run.local_epochs=1", "--set", "run.workers=1"],
}
GUIDES = (
    "README.md",
    "docs/how-to/annotate-images.md",
    "docs/how-to/ask-watch-and-decide.md",
    "docs/how-to/attack-a-run.md",
    "docs/how-to/audit-a-federation.md",
    "docs/how-to/debias-a-federation.md",
    "docs/how-to/explain-a-prediction.md",
    "docs/how-to/go-on-with-a-run.md",
    "docs/how-to/hand-a-model-on.md",
    "docs/how-to/it-department.md",
    "docs/how-to/manage-keys.md",
    "docs/how-to/private-run.md",
    "docs/how-to/put-a-defense-at-the-door.md",
    "docs/how-to/read-a-report.md",
    "docs/how-to/run-a-grid.md",
    "docs/how-to/run-a-real-federation.md",
    "docs/how-to/share-images.md",
    "docs/how-to/use-your-own-images.md",
    "docs/how-to/verify-a-ledger.md",
    "docs/how-to/watch-a-real-federation.md",
    "docs/how-to/write-a-data-source.md",
    "docs/how-to/write-a-method.md",
    "docs/how-to/write-a-section.md",
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A reader's folder: runs, an image, a folder of images, and files of their own."""
    folder = tmp_path_factory.mktemp("desk")
    updates = {"run": {"record_updates": True, "local_reference": True}}
    vitrail.run(merge(SMALL, updates), folder / "RUN")
    vitrail.run({**SMALL, "method": {"name": "fedgrasp"}}, folder / "SUBSPACES")
    for name in ("CM", "PM", "GM", "UNDEFENDED"):
        shutil.copytree(folder / "RUN", folder / name)
    for name, tree in FILES.items():
        (folder / name).write_text(tomli_w.dumps(tree), encoding="utf-8")
    drawn = '{"annotations": [{"box": [0.0, 0.0, 0.3, 0.1], "note": "burned-in text"}]}'
    (folder / "annotations.json").write_text(drawn, encoding="utf-8")
    draw = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (folder / "PATH" / label).mkdir(parents=True)
        for n in range(20):
            pixels = draw.integers(0, 256, (16, 16, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "PATH" / label / f"{n}.png")
    shutil.copy(folder / "PATH" / "cat" / "0.png", folder / "bird.png")
    shutil.copytree(folder / "PATH" / "cat", folder / "FOLDER")
    return folder


def test_every_guide_with_commands_is_followed(project):
    guides = {
        str(page.relative_to(project))
        for page in (project / "README.md", *(project / "docs/how-to").glob("*.md"))
        if read_commands(page)
    }
    assert guides == set(GUIDES)


@pytest.mark.very_slow
@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_can_be_followed(name, project, desk, tmp_path, command):
    shutil.copytree(desk, tmp_path, dirs_exist_ok=True)
    if name == "README.md":  # where `vitrail init` writes it
        (tmp_path / "mine.toml").unlink()
    is_about_sharing = name.endswith("share-images.md")
    for line in read_commands(project / name):
        if any(" ".join(line).startswith(words) for words in ELSEWHERE):
            continue
        words = [word for word in line if word != "..."]
        if is_about_sharing:
            words = ["share.toml" if word == "FILE.toml" else word for word in words]
        if words[:2] == ["leakage", "FILE.toml"]:
            words[1] = "grid.toml"
        if words[:2] == ["tune", "FILE.toml"]:
            words[1] = "tune.toml"
        if "CLASS" in words:
            words[words.index("CLASS")] = vitrail.load(desk / "RUN").classes[0]
        if "--consensus" in words:
            words[1] = "SUBSPACES"
        words = [path for word in words for path in sorted(expand_word(word)) or [word]]
        code, out, err = command(*words, *FEWER.get(words[0], ()))
        assert code == 0, f"{name}: vitrail {' '.join(words)}: {err or out}"
        if name.endswith("debias-a-federation.md") and words[0] == "audit":
            call_biased(tmp_path / "audit.json")


def call_biased(file):
    """What an expert does who knows better than the audit."""
    audit = json.loads(file.read_text(encoding="utf-8"))
    label = vitrail.load(file.parent / "RUN").classes[0]
    finding = {"class": label, "verdict": "biased", "score": 3.0, "prototypes": []}
    audit["sites"][0]["classes"].insert(0, finding)
    file.write_text(json.dumps(audit), encoding="utf-8")


def expand_word(word):
    """What a shell makes of a star."""
    return glob.glob(word) if "*" in word else []
