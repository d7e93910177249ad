"""The files of something that plugs in, from a method to a section of the report."""

from __future__ import annotations

import keyword
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from string import Template

from vitrail.aggregate import RULES
from vitrail.data import SOURCES
from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.files import write_text
from vitrail.methods.base.method import METHODS
from vitrail.models import BACKBONES
from vitrail.release import DEFENSES
from vitrail.report.plugin_sections import SECTIONS

KINDS: dict[str, Collection[str]] = {
    "method": METHODS,
    "server-method": METHODS,
    "source": SOURCES,
    "backbone": BACKBONES,
    "defense": DEFENSES,
    "rule": RULES,
    "section": SECTIONS,
    "attack": (),  # to import all attacks takes long; a clash is told when it is loaded
}


def write_template(name: str, folder: str | Path = ".", kind: str = "method") -> tuple[Path, ...]:
    """Write `NAME.py`, `test_NAME.py` and `NAME.toml`; nothing is ever overwritten.

    A hyphen in the name is an underscore in those of files.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"there is no template for {kind!r}", where="--kind", hint=suggest_name(kind, KINDS)
        )
    module = name.replace("-", "_")
    _check_name(name, module, kind)
    title = "".join(w[:1].upper() + w[1:] for w in module.split("_"))
    words = {"name": name, "module": module, "Name": title}
    folder = Path(folder)
    files = {
        folder / f"{module}.py": f"{kind}.py.txt",
        folder / f"test_{module}.py": f"test_{kind}.py.txt",
        folder / f"{module}.toml": f"{kind}.toml.txt",
    }
    for path in files:
        if path.exists():
            raise RunError(
                "this file exists", where=str(path), hint="Choose another name or another folder."
            )
    texts = {path: _read(template).substitute(words) for path, template in files.items()}
    for path, text in texts.items():
        write_text(path, text)
    return tuple(files)


def _check_name(name: str, module: str, kind: str) -> None:
    """A name must be that of a Python module but for hyphens, and new."""
    if not module.isidentifier() or not name.isascii() or keyword.iskeyword(module):
        tidy = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_").lower()
        good = tidy.isidentifier() and not keyword.iskeyword(tidy)
        raise ConfigError(
            f"{name!r} cannot be the name of a Python file",
            where="NAME",
            hint=f"Use letters, digits, hyphens and underscores"
            f"{f', such as {tidy}' if good else ''}.",
        )
    if module.strip("_") == "" or module.startswith("test_"):
        raise ConfigError(f"{name!r} is no name for a {kind}", where="NAME")
    taken = {known.replace("-", "_") for known in KINDS[kind]}
    if module in taken:
        raise ConfigError(
            f"Vitrail already has a {kind} called {module.replace('_', '-')!r}",
            where="NAME",
            hint="Choose another name.",
        )


def _read(file: str) -> Template:
    text = resources.files("vitrail").joinpath("templates", file).read_text(encoding="utf-8")
    return Template(text)
