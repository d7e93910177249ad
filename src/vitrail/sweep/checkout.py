"""What only a checkout has: `experiments/`, the code and the grids behind the docs' tables."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from vitrail.errors import ConfigError

_FOLDER = Path(__file__).resolve().parents[3] / "experiments"


def find_experiments() -> Path | None:
    """The folder `experiments` of the checkout this package runs from; None where it was installed
    without one."""
    return _FOLDER if (_FOLDER / "__init__.py").is_file() else None


def require_experiments() -> Path:
    """The same folder, or an error that says where it is to be had."""
    folder = find_experiments()
    if folder is None:
        raise ConfigError(
            "the grids and tables of the docs are not part of the installed package",
            where="reproduce",
            hint="Run it from a checkout of the project: pip install -e . in its root.",
        )
    return folder


def load_tables() -> None:
    """Register the tables of the checkout; without one there is nothing to register."""
    folder = find_experiments()
    if folder is None:
        return
    if "experiments" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "experiments", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["experiments"] = module
        spec.loader.exec_module(module)
    importlib.import_module("experiments.tables")
