"""Write `deploy/requirements.lock` (every package with its hash) and `deploy/sbom.cdx.json` (the bill
of materials, CycloneDX 1.5) for an installation with all extras: `python deploy/make_lock.py`.

    pip install --require-hashes --no-deps -r deploy/requirements.lock
    pip install --no-deps vitrail-*.whl

installs exactly these files. The hashes are those of one platform and one version of Python, which
the lock names; run this again for another.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def resolve() -> list[dict[str, str]]:
    """What pip would install, by name: version, hash, license. Nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
        target = ["-c", str(ROOT / "constraints.txt"), f"{ROOT}[all]"]
        subprocess.run([sys.executable, "-m", "pip", *words, *target], check=True)
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    packages = []
    for item in items:
        meta = item["metadata"]
        if meta["name"] == "vitrail":
            continue
        packages.append(
            {
                "name": meta["name"].lower().replace("_", "-"),
                "version": meta["version"],
                "sha256": item["download_info"]["archive_info"]["hashes"]["sha256"],
                "license": meta.get("license_expression") or (meta.get("license") or "")[:80],
            }
        )
    return sorted(packages, key=lambda one: one["name"])


def format_lock(packages: list[dict[str, str]]) -> str:
    """The lines that `pip install --require-hashes` reads."""
    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    head = f"# All of vitrail[all], for {where}. Written by deploy/make_lock.py.\n"
    lines = (f"{p['name']}=={p['version']} --hash=sha256:{p['sha256']}\n" for p in packages)
    return head + "".join(lines)


def format_bill(packages: list[dict[str, str]], version: str) -> str:
    """A CycloneDX document: what is inside, which version, which hash, which license."""
    components = []
    for one in packages:
        entry: dict[str, object] = {
            "type": "library",
            "name": one["name"],
            "version": one["version"],
            "purl": f"pkg:pypi/{one['name']}@{one['version']}",
            "hashes": [{"alg": "SHA-256", "content": one["sha256"]}],
        }
        if one["license"].strip():
            entry["licenses"] = [{"license": {"name": one["license"].strip().splitlines()[0]}}]
        components.append(entry)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "vitrail", "version": version},
        },
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def main() -> None:
    """Write both files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = resolve()
    (ROOT / "deploy/requirements.lock").write_text(format_lock(packages), encoding="utf-8")
    bill = format_bill(packages, project["version"])
    (ROOT / "deploy/sbom.cdx.json").write_text(bill, encoding="utf-8")
    print(f"{len(packages)} packages")


if __name__ == "__main__":
    main()
