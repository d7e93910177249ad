"""The files an IT department starts from: units that systemd takes, commands that exist."""

import configparser
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
from typer.main import get_command

from vitrail.cli.flower import flower

UNITS = {"coordinator": "server", "site": "site"}


def read_unit(project, name):
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str
    unit.read_string((project / "deploy" / f"vitrail-{name}.service").read_text())
    return unit


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_exists_as_nobody_special(project, name):
    service = read_unit(project, name)["Service"]
    program, group, command, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/vitrail") and (group, command) == ("flower", UNITS[name])
    known = {
        word for option in get_command(flower).commands[command].params for word in option.opts
    }
    assert {word for word in words if word.startswith("--")} <= known
    assert service["User"] != "root" and service["UMask"] == "0077"
    assert service["NoNewPrivileges"] == "true" and service["ProtectSystem"] == "strict"
    assert service["Restart"] == "on-failure"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_unit(project, name, tmp_path):
    text = (project / "deploy" / f"vitrail-{name}.service").read_text()
    there = text.replace("/opt/vitrail/bin/vitrail", "/bin/true")
    there = re.sub(r"^(User|Group)=vitrail$", r"\1=root", there, flags=re.M)
    (tmp_path / f"vitrail-{name}.service").write_text(there)
    command = ["systemd-analyze", "verify", str(tmp_path / f"vitrail-{name}.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_copies_what_exists_and_installs_extras_that_exist(project):
    text = (project / "deploy" / "Containerfile").read_text().replace("\\\n", " ")
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()]
    assert "src" in copied and all((project / word).exists() for word in copied)
    extras = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    named = re.search(r'"\.\[([a-z,]+)\]"', text)[1].split(",")
    assert "flower" in named and set(named) <= set(extras["optional-dependencies"])
    users = re.findall(r"^USER (\S+)$", text, re.M)
    assert users == ["vitrail"] and "ENTRYPOINT" in text[text.index("USER ") :]
