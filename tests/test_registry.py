"""Names that plug in, and plugins that do not."""

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
