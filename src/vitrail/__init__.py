"""Vitrail: federated learning for images that people can see through, and strangers cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitrail.config import Config
    from vitrail.engine import Progress
    from vitrail.engine.loaded import Run

__version__ = "0.1.0"
__all__ = ["__version__", "load", "resume", "run"]


def run(
    config: str | Path | Mapping[str, Any] | Config,
    out: str | Path | None = None,
    on_round: Callable[[Progress], None] | None = None,
    overrides: tuple[str, ...] = (),
) -> Run:
    """Train a federation. `config` is a TOML file, a dictionary of sections, or a `Config`.

    Writes the run folder `out`, which must not exist (left out: a new one under `runs/`), and
    returns it opened. `on_round` is told after each round. Works from a notebook and from a
    script without a main guard.
    """
    from vitrail.config import Config, load, parse
    from vitrail.crew import crew_for

    if isinstance(config, Config):
        config = config.model_dump(mode="json", exclude_none=True)
    if isinstance(config, Mapping):
        loaded = parse(config, Path.cwd(), "config", overrides)
    else:
        loaded = load(config, overrides)
    with crew_for(loaded.config.run) as crew:  # before the imports below: theirs take as long
        from vitrail.engine import start
        from vitrail.engine.folder import free_folder

        folder = free_folder(Path("runs"), Path(loaded.source).stem) if out is None else out
        start(loaded, folder, on_round, crew)
    return _open(folder)


def resume(out: str | Path, on_round: Callable[[Progress], None] | None = None) -> Run:
    """Go on with a run that was stopped or killed."""
    from vitrail.engine import resume as go_on

    go_on(out, on_round=on_round)
    return _open(out)


def load(out: str | Path) -> Run:
    """Open a run folder: `.config`, `.rows()`, `.curve()`, `.model(site=None)`."""
    return _open(out)


def _open(out: str | Path) -> Run:
    from vitrail.engine.loaded import Run

    return Run(out)
