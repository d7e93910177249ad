"""The list of commands: it costs no import, and says what the commands themselves say."""

import inspect
import os
import subprocess
import sys

import pytest

from vitrail.cli.app import COMMANDS, load_command

HEAVY = ("torch", "numpy", "pydantic", "vitrail.config", "vitrail.files")
ASK = """
import sys
from vitrail.cli import main
sys.argv = ["vitrail", *sys.argv[1:]]
try:
    main()
finally:
    print("loaded:", *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--version"], ["--help"], [], ["runn"]])
def test_a_list_of_commands_imports_nothing_heavy(words):
    call = [sys.executable, "-c", ASK.format(heavy=HEAVY), *words]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "loaded:", done.stderr
    assert done.returncode == (2 if words in ([], ["runn"]) else 0)
    if words == ["--help"]:
        assert all(f" {name} " in done.stdout for name in COMMANDS)
    if words == ["runn"]:
        assert "Did you mean 'run'?" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name):
    command = load_command(name)
    first = inspect.cleandoc(command.help).split("\n\n")[0]
    assert (command.name, " ".join(first.split())) == (name, COMMANDS[name])


def test_every_module_of_a_command_is_listed(project):
    folder = project / "src" / "vitrail" / "cli"
    shared = {"--init--", "app", "arguments", "flower-keys", "flower-terms", "grids", "progress"}
    shared |= {"option-reference"}
    modules = {path.stem.replace("_", "-") for path in folder.glob("*.py")} - shared
    assert modules == set(COMMANDS)


def test_the_shell_completes_names_of_commands_without_heavy_imports():
    words = {"_VITRAIL_COMPLETE": "complete_bash", "COMP_WORDS": "vitrail re", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(heavy=HEAVY)],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["resume", "reproduce", "report"], done.stderr
    assert done.stderr.splitlines()[-1] == "loaded:"


def test_the_shell_completes_options_of_a_command():
    words = {"_VITRAIL_COMPLETE": "complete_bash", "COMP_WORDS": "vitrail run --q"}
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(heavy=HEAVY)],
        env={**os.environ, **words, "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["--quiet"], done.stderr
