"""Configurations: what is written is what is read, and a mistake is named."""

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.config import dump, load, parse
from vitrail.config.reference_page import make_lines
from vitrail.errors import ConfigError, VitrailError

EXAMPLE = """
[data]
source = "parquet"
path = "cars40.parquet"
image_size = 224
label = "label"
[partition]
kind = "dirichlet"
sites = 8
alpha = 0.5
test_fraction = 0.2
[model]
backbone = "efficientnet-lite0"
weights = "imagenet"
frozen = true
[method]
name = "fedavg"
[run]
rounds = 30
local_epochs = 3
batch_size = 64
participation = 1.0
seed = 1
workers = 2
device = "auto"
"""


def test_the_example_of_the_docs_is_read_as_it_stands(tmp_path):
    path = tmp_path / "example.toml"
    path.write_text(EXAMPLE)
    loaded = load(path)
    assert loaded.base == tmp_path.resolve()
    assert loaded.config.partition.alpha == 0.5 and loaded.config.run.batch_size == 64


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"run": {"round": 3}}, ["run.round", "unknown", "'rounds'"]),
        ({"runs": {}}, ["runs", "unknown", "'run'"]),
        ({"data": {"augment": {"crops": 1}}}, ["data.augment.crops", "'crop'"]),
        ({"run": {"rounds": "3"}}, ["run.rounds", "integer", "'3'"]),
        ({"run": {"rounds": True}}, ["run.rounds", "integer"]),
        ({"run": {"rounds": -1}}, ["run.rounds", "greater", "-1"]),
        ({"run": {"participation": 0}}, ["run.participation"]),
        ({"run": {"seed": -1}}, ["run.seed"]),
        ({"partition": {"kind": "iidd"}}, ["partition.kind", "'dirichlet'", "'iidd'"]),
        ({"partition": {"kind": "column"}}, ["partition.column"]),
        ({"optimizer": {"lr": float("nan")}}, ["optimizer.lr"]),
        ({"optimizer": {"lr": float("inf")}}, ["optimizer.lr"]),
        ({"bias": {"kind": "emoji", "position": "up"}}, ["bias", "position"]),
        ({"bias": {"sites": [0]}}, ["bias", "kind", "missing"]),
        ({"data": {"balance": True}}, ["data.balance", "data.positive"]),
        ({"data": {"augment": {"flip": True}}, "model": {"frozen": True}}, ["data.augment"]),
        ({"data": {"views": ["identity", "flip"]}}, ["data.views", "model.frozen"]),
        ({"partition": {"fold": 2}}, ["partition.fold", "partition.folds"]),
        ({"partition": {"folds": 2, "fold": 2}}, ["partition.fold = 2"]),
        ({"partition": {"folds": 2, "test_fraction": 0.1}}, ["partition.test_fraction"]),
    ],
)
def test_a_mistake_is_one_sentence_that_names_file_key_and_choice(tree, words):
    with pytest.raises(ConfigError) as caught:
        parse(tree, source="mine.toml")
    text = str(caught.value)
    assert text.startswith("mine.toml") and "\n" not in text
    for word in words:
        assert word in text


def test_overrides_win_and_are_checked():
    loaded = parse({"run": {"rounds": 3}}, overrides=["run.rounds=5", "partition.kind=shards"])
    assert loaded.config.run.rounds == 5 and loaded.config.partition.kind == "shards"
    for wrong in ("run.rounds", "rounds=3", "run.rounds=x", "run.rounds.deep=1", "=3"):
        with pytest.raises(VitrailError):
            parse({"run": {"rounds": 3}}, overrides=[wrong])


def test_one_bias_or_many():
    one = parse({"bias": {"kind": "patch"}}).config
    many = parse({"bias": [{"kind": "patch"}, {"kind": "blur"}]}).config
    assert len(one.bias) == 1 and len(many.bias) == 2


@settings(deadline=None)  # what is read back, not how fast on a busy machine
@given(
    rounds=st.integers(0, 10**6),
    alpha=st.floats(1e-6, 1e6),
    name=st.text(min_size=1, max_size=30),
    plugins=st.lists(st.text(max_size=10), max_size=3),
)
def test_what_is_written_is_what_is_read(rounds, alpha, name, plugins):
    tree = {
        "run": {"rounds": rounds, "plugins": plugins},
        "partition": {"alpha": alpha},
        "method": {"name": name, "mu": alpha},
        "bias": {"kind": "text", "text": name, "position": [0.25, 0.75]},
    }
    config = parse(tree).config
    assert parse(tomllib.loads(dump(config))).config == config


def test_no_file_and_no_toml(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        load(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff[run")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path / "bad.toml")


def test_the_reference_page_is_that_of_the_schema(project):
    page = (project / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert page == "\n".join(make_lines()), "run: python -m vitrail.config.reference_page"
