"""Names that plug in, and plugins that do not."""

import importlib
import sys

import pytest

from vitrail.errors import ConfigError
from vitrail.methods import METHODS
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
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ny = (2\n", "is not valid Python"),
        ("x = 1\nint('two')\n", "cannot be loaded .ValueError: invalid literal"),
        ("\nimport torch; torch.zeros('a')\n", "cannot be loaded .TypeError"),
    ],
)
def test_a_plugin_that_is_torn_is_named_with_its_line(tmp_path, monkeypatch, dotted, text, told):
    (tmp_path / "torn_plugin.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torn_plugin", raising=False)
    name = "torn_plugin" if dotted else "torn_plugin.py"
    with pytest.raises(ConfigError, match=rf"torn_plugin\.py, line 2: this plugin {told}"):
        load_plugins((name,), tmp_path)
    (tmp_path / "torn_plugin.py").write_text("x = 1  # and no more\n")
    importlib.invalidate_caches()
    load_plugins((name,), tmp_path)  # mended, it is read anew


def test_what_a_plugin_itself_refuses_stays_its_own_sentence(tmp_path):
    (tmp_path / "clash.py").write_text(
        "from vitrail.methods import METHODS\nMETHODS.register('fedavg')(int)\n"
    )
    with pytest.raises(ConfigError, match=r"^run\.plugins: two methods are called 'fedavg'"):
        load_plugins(("clash.py",), tmp_path)


def test_an_import_that_a_plugin_lacks_is_told_with_its_line(tmp_path):
    (tmp_path / "lacks.py").write_text("import no_such_module_at_all\n")
    with pytest.raises(ConfigError, match=r"lacks\.py, line 1: .*No module named"):
        load_plugins(("lacks.py",), tmp_path)


COUNTING = """
import pathlib
from vitrail.methods import METHODS, Method
note = pathlib.Path(__file__).with_suffix(".count")
note.write_text(note.read_text() + "x" if note.exists() else "x")
@METHODS.register("{name}")
class Counted(Method):
    summary = "{summary}"
"""


def test_a_plugin_is_executed_once_a_run_and_anew_when_it_has_changed(tmp_path, tiny):
    plugin, count = tmp_path / "counted.py", tmp_path / "counted.count"
    plugin.write_text(COUNTING.format(name="counted", summary="first"))
    changes = {"method": {"name": "counted"}, "run": {"rounds": 1, "plugins": [str(plugin)]}}
    run = tiny("one", **changes)
    assert run.finished and count.read_text() == "x"
    tiny("two", **changes)
    assert count.read_text() == "x"
    plugin.write_text(COUNTING.format(name="counted", summary="changed"))
    load_plugins(("counted.py",), tmp_path)
    assert count.read_text() == "xx" and METHODS["counted"].summary == "changed"


def test_files_of_one_name_in_two_folders_do_not_stand_for_each_other(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(COUNTING.format(name="same", summary=name))
    for name in ("a", "b", "a"):
        load_plugins(("same.py",), tmp_path / name)
        assert METHODS["same"].summary == name


def test_a_plugin_that_was_refused_is_tried_again(tmp_path):
    (tmp_path / "refused.py").write_text(
        "from vitrail.errors import ConfigError\nraise ConfigError('not on this machine')\n"
    )
    for _ in range(2):
        with pytest.raises(ConfigError, match="not on this machine"):
            load_plugins(("refused.py",), tmp_path)
