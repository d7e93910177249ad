"""Names that plug in, and plugins that do not."""

import importlib

import pytest

from vitrail.errors import ConfigError
from vitrail.registry import Registry, load_plugins


def test_an_unknown_name_is_answered_with_the_nearest():
    things = Registry("thing", "section.key")
    things.register("apple")(object())
    with pytest.raises(ConfigError, match=r"section.key.*'aple'.*Did you mean 'apple'"):
        things["aple"]
    assert list(things) == ["apple"] and len(things) == 1 and "aple" not in things


def test_two_of_the_same_name_are_refused_but_the_same_twice_is_not():
    things = Registry("thing", "section.key")

    def one():
        pass

    def two():
        pass

    things.register("a")(one)
    things.register("a")(one)
    with pytest.raises(ConfigError, match="two things are called 'a'"):
        things.register("a")(two)


def test_plugins_that_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_plugins(("absent.py",), tmp_path)
    with pytest.raises(ConfigError, match="cannot be imported"):
        load_plugins(("no_such_module_at_all",), tmp_path)


@pytest.mark.parametrize("dotted", [False, True])
def test_a_plugin_that_is_not_python_is_named_with_its_line(tmp_path, monkeypatch, dotted):
    (tmp_path / "torn_plugin.py").write_text("x = 1\ny = (2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "torn_plugin" if dotted else "torn_plugin.py"
    with pytest.raises(ConfigError, match=r"torn_plugin\.py, line 2: .*not valid Python"):
        load_plugins((name,), tmp_path)
    (tmp_path / "torn_plugin.py").write_text("x = 1\n")
    importlib.invalidate_caches()
    load_plugins((name,), tmp_path)  # mended, it is read anew
