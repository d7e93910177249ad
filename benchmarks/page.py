"""`make bench`: run the benchmarks one after the other and write what they print to the docs.

    python benchmarks/page.py [--only features scale ...] [--out docs/explanation/benchmarks.md]

Each section of the page is the command and what it printed, with the load of the machine when it
began. A section that is not run again stays as it is.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "explanation" / "benchmarks.md"
SECTIONS = {
    "engine": (
        "Rounds a second, against a raw loop, pfl-research and Flower's simulation",
        ["engine.py"],
    ),
    "features": ("Features of a frozen backbone", ["features.py"]),
    "heads": ("A turn of a linear head on cached features, in milliseconds", ["heads.py"]),
    "training": ("A step of local training, in milliseconds", ["training.py"]),
    "scale": ("Many sites", ["many_sites.py"]),
    "memory": ("Memory", ["memory.py"]),
    "lrp": ("Relevance propagation, over a forward and backward pass", ["lrp.py"]),
    "geometry": ("Means of subspaces", ["geometry.py"]),
}
HEAD = """# Benchmarks

Written by `make bench`. Ratios are measured in one sitting, with contestants in turns; read
medians and ranges, not digits. A load well above 0.5 at the start means that others were at work.
[Speed and memory](speed.md) says what the figures mean, and what did not help.
"""


def describe_machine() -> str:
    """Processor, cores and the versions that decide on speed."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    chip = name.group(1) if name else platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "onnxruntime"))
    return f"{chip}, {os.cpu_count()} cores; {packages}"


def run_section(name: str) -> str:
    """A section of the page: title, command, and what it printed."""
    title, words = SECTIONS[name]
    load, began = os.getloadavg()[0], time.perf_counter()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = [sys.executable, str(HERE / words[0]), *words[1:]]
    done = subprocess.run(script, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
    seconds = time.perf_counter() - began
    command = f"python benchmarks/{' '.join(words)}"
    note = f"{describe_machine()}; load {load:.1f} at the start, {seconds:.0f} s."
    printed = done.stdout.strip()
    if not printed.startswith("|"):
        printed = f"```text\n{printed}\n```"
    return f"## {title}\n\n    {command}\n\n{note}\n\n{printed}\n"


def read_sections(page: Path) -> dict[str, str]:
    """The sections that stand on a page already, by name."""
    if not page.exists():
        return {}
    parts = re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    titles = {title: name for name, (title, _) in SECTIONS.items()}
    kept = {part.partition("\n")[0].removeprefix("## "): part for part in parts}
    return {titles[title]: part for title, part in kept.items() if title in titles}


def write_page(page: Path, sections: dict[str, str]) -> None:
    """The page with its sections in their order."""
    parts = [sections[name].strip() + "\n" for name in SECTIONS if name in sections]
    page.write_text("\n".join([HEAD, *parts]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=sorted(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--out", type=Path, default=PAGE)
    args = parser.parse_args()
    for name in args.only:
        print(f"{name} ...", flush=True)
        section = run_section(name)
        write_page(args.out, {**read_sections(args.out), name: section})
    print(args.out)


if __name__ == "__main__":
    main()
