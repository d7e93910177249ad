"""A file over another one, and the scales that a file holds of itself."""

import pytest

from vitrail.config import load
from vitrail.errors import ConfigError

BASE = """
needs = "path"
[data]
limit = 100
keep = ["a", "b"]
[run]
rounds = 3
[sweep]
seeds = [1, 2]
[scale.large]
drop = ["data.limit"]
data.keep = ["c"]
run.rounds = 30
sweep.alphas = [0.1]
"""


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_a_scale_replaces_what_it_names_and_leaves_out_what_it_drops(write):
    file = write("grid.toml", BASE)
    small, large = load(file), load(file, ["run.rounds=31"], "large")
    assert (small.config.data.limit, small.config.run.rounds) == (100, 3)
    assert (large.config.data.limit, large.config.run.rounds) == (None, 31)
    assert large.config.data.keep == ("c",)
    assert dict(small.sweep) == {"seeds": [1, 2]}
    assert list(large.sweep.items()) == [("seeds", [1, 2]), ("alphas", [0.1])]


def test_a_file_extends_another_through_a_third(write, tmp_path):
    write("base.toml", BASE)
    write("middle.toml", 'extends = "base.toml"\n[data]\nkeep = ["x"]\n[run]\nseed = 5\n')
    file = write(
        "deep/top.toml", 'extends = "../middle.toml"\ndrop = ["data.limit"]\n[run]\nrounds = 4\n'
    )
    loaded = load(file)
    assert loaded.base == tmp_path / "deep" and loaded.source == str(file)
    config = loaded.config
    assert (config.run.rounds, config.run.seed, config.data.limit) == (4, 5, None)
    assert config.data.keep == ("x",)
    assert load(file, scale=None).config == config
    with pytest.raises(ConfigError, match=r"scale\.large: drop: there is no key 'data.limit'"):
        load(file, scale="large")


@pytest.mark.parametrize(
    ("text", "scale", "words"),
    [
        ('extends = "absent.toml"', None, "extends: there is no file .*absent.toml.*relative"),
        ("extends = 3", None, "extends: must be the path"),
        ('extends = "wrong.toml"', None, "wrong.toml: this is not valid TOML"),
        ('extends = "file.toml"', None, "extends: file.toml extends this file in turn"),
        ('extends = "other.toml"', None, r"other.toml: extends: file.toml extends this file in"),
        ("scale = 3", None, r"scale: must hold sections"),
        ("scale.large = 3", None, r"scale: must hold sections"),
        ("[scale.large]", "larg", "no scale 'larg'.*Did you mean 'large'"),
        ('[scale.large]\ndrop = "data.limit"', "large", "drop: must be a list"),
        ('[scale.large]\ndrop = ["data.limit.x"]', "large", "no key 'data.limit.x'"),
        ("[scale.large]\nrun.round = 3", "large", "run.round: this key is unknown"),
    ],
)
def test_a_wrong_layer_is_refused_in_one_sentence(write, text, scale, words):
    write("wrong.toml", "[data")
    write("other.toml", 'extends = "file.toml"')
    file = write("file.toml", f"{text}\n")
    with pytest.raises(ConfigError, match=words) as caught:
        load(file, scale=scale)
    assert "\n" not in str(caught.value)
