"""The lock file and the bill of materials are of one installation, and of what is tested."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r"^([a-z0-9.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$")


def read_lock():
    text = (ROOT / "deploy/requirements.lock").read_text().splitlines()
    found = [LINE.match(line) for line in text if not line.startswith("#")]
    assert all(found)
    return {match[1]: (match[2], match[3]) for match in found}


def test_every_locked_package_is_the_tested_one():
    tested = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if "==" in line:
            name, version = line.split("==")
            tested[name.lower().replace("_", "-")] = version.strip()
    for name, (version, _) in read_lock().items():
        assert tested.get(name) == version.partition("+")[0], name


def test_the_lock_holds_every_dependency_of_all_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    used = re.search(r"\[(.*)\]", extras["all"][0])[1].split(",")
    assert set(used) == set(extras) - {"all", "dev", "docs"}
    wanted = [*project["dependencies"], *(one for extra in used for one in extras[extra])]
    names = {re.match(r"[A-Za-z0-9_.-]+", one)[0].lower().replace("_", "-") for one in wanted}
    assert names <= set(read_lock())


def test_the_bill_lists_what_the_lock_installs():
    bill = json.loads((ROOT / "deploy/sbom.cdx.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert bill["metadata"]["component"]["version"] == project["version"]
    listed = {c["name"]: (c["version"], c["hashes"][0]["content"]) for c in bill["components"]}
    assert listed == read_lock()


def test_the_version_is_one_and_the_changelog_knows_it():
    import vitrail

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert vitrail.__version__ == project["version"]
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()
