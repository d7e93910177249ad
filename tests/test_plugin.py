"""One place to import from: what plug-ins of the docs, templates and examples import."""

import ast
import re
import subprocess
import sys

import pytest

from vitrail import plugin

BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
OTHERS = {"torch", "numpy", *sys.stdlib_module_names}


def list_texts(project):
    """Every text of ours that registers something, and the tests that come with templates."""
    for path in sorted((project / "src" / "vitrail" / "templates").glob("*.py.txt")):
        text = path.read_text(encoding="utf-8")
        names = {"${Name}": "Name", "${module}": "name", "$Name": "Name", "$name": "name"}
        for word, value in {**names, "$module": "name"}.items():
            text = text.replace(word, value)
        yield path.name, text
    for path in sorted((project / "docs" / "how-to").glob("*.md")):
        for number, text in enumerate(BLOCK.findall(path.read_text(encoding="utf-8"))):
            if ".register(" in text:
                yield f"{path.name}-{number}", text
    for path in sorted((project / "examples").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if ".register(" in text:
            yield path.name, text


def test_plugins_of_ours_import_from_one_place(project):
    names, wrong = [], []
    for where, text in list_texts(project):
        names.append(where)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module]
            else:
                continue
            if modules == ["vitrail.plugin"]:
                wrong += [(where, a.name) for a in node.names if a.name not in plugin.__all__]
            elif not all(m == "vitrail" or m.split(".")[0] in OTHERS for m in modules):
                wrong.append((where, modules))
    assert wrong == []
    assert len(names) > 16 and "how_to_method.py" in names and "write-a-method.md-0" in names


@pytest.mark.parametrize("name", plugin.__all__)
def test_every_name_is_there(name):
    assert getattr(plugin, name) is not None


def test_the_list_is_complete_and_says_so_of_what_is_not_in_it():
    public = {n for n in vars(plugin) if not n.startswith("_")}
    assert public - set(plugin.__all__) <= {"Any", "TYPE_CHECKING", "annotations", "import_module"}
    assert len(set(plugin.__all__)) == len(plugin.__all__)
    with pytest.raises(AttributeError, match=r"vitrail\.plugin has no 'Methods'"):
        plugin.Methods  # noqa: B018


def test_a_worker_that_imports_a_plugin_imports_no_attack_and_no_chart():
    code = "import sys, vitrail.plugin; print({'vitrail.attack', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "set()", done.stderr


TRAIN = """
import sys, vitrail
from vitrail.plugin import Viewer, compose

plugins = sys.argv[1:]
for method in ("my-prox", "my-momentum"):
    config = {
        "data": {"source": "stripes", "image_size": 16, "limit": 40},
        "partition": {"sites": 2},
        "model": {"backbone": "small-cnn", "width": 4},
        "method": {"name": method},
        "release": {"defenses": ["coarse", "hiss"], "coarse": {"step": 0.001}},
        "run": {"rounds": 2, "plugins": plugins},
    }
    run = vitrail.run(config, method)
assert 'id="own-bytes-by-site"' in compose([run.path], Viewer()).html
"""


@pytest.mark.very_slow
def test_plugins_of_the_docs_run_as_they_are_printed(project, tmp_path):
    files = []
    for where, text in list_texts(project):
        if ".md-" in where:
            files.append(tmp_path / f"{where.replace('-', '_').replace('.', '_')}.py")
            files[-1].write_text(text, encoding="utf-8")
    call = [sys.executable, "-c", TRAIN, *map(str, files)]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
