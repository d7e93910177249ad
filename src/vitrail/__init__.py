"""Vitrail: federated learning for images that people can see through, and strangers cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from vitrail.api.results import ComparisonResult
    from vitrail.api.run import Run
    from vitrail.config import Config
    from vitrail.engine.run import Progress

__version__ = "0.2.0"
__all__ = ["__version__", "compare", "extend", "load", "resume", "run", "withdraw"]


def run(
    config: str | Path | Mapping[str, Any] | Config,
    out: str | Path | None = None,
    on_round: Callable[[Progress], None] | None = None,
    overrides: tuple[str, ...] = (),
    data: Any = None,
) -> Run:
    """Train a federation. `config` is a TOML file, a dictionary of sections, or a `Config`.

    Writes the run folder `out`, which must not exist (left out: a new one under `runs/`), and
    returns it opened. `on_round` is told after each round. Works from a notebook and from a
    script without a main guard. `data` is a pandas frame with the columns path and label (site,
    patient, ...), in place of the images that `[data]` names; it is kept beside the run folder.
    """
    from vitrail.config import Config, load, parse
    from vitrail.engine.workers.processes import start_workers

    if data is not None:
        out, overrides = _store_frame(data, config, out, overrides)

    if isinstance(config, Config):
        config = config.model_dump(mode="json", exclude_none=True)
    if isinstance(config, Mapping):
        loaded = parse(config, Path.cwd(), "config", overrides)
    else:
        loaded = load(config, overrides)
    with start_workers(loaded.config.run) as workers:  # before the imports, which take as long
        from vitrail.engine.run import start
        from vitrail.engine.storage.run_folder import find_free_folder

        folder = find_free_folder(Path("runs"), Path(loaded.source).stem) if out is None else out
        start(loaded, folder, on_round or _find_notebook(), workers)
    return _open(folder)


def _store_frame(
    data: Any, config: Any, out: str | Path | None, overrides: tuple[str, ...]
) -> tuple[Path, tuple[str, ...]]:
    """The folder of a run, and its settings with a frame's images in them."""
    import json

    from vitrail.api.given_frame import write_manifest
    from vitrail.engine.storage.run_folder import RunFolder, find_free_folder

    stem = Path(config).stem if isinstance(config, str | Path) else "config"
    folder = find_free_folder(Path("runs"), stem) if out is None else Path(out)
    RunFolder(folder).check_free()
    file = folder.with_name(f"{folder.name}-images.parquet").resolve()
    write_manifest(data, file)
    return folder, (*overrides, 'data.source="manifest"', f"data.path={json.dumps(str(file))}")


def resume(
    out: str | Path,
    on_round: Callable[[Progress], None] | None = None,
    workers: int | None = None,
    allow_plugins: bool = False,
) -> Run:
    """Go on with a run that was stopped or killed, with another number of workers if given.

    Plug-ins that the folder names are executed only if you allow it: a folder may be somebody
    else's.
    """
    if allow_plugins:
        from vitrail.registry import allow_folder_plugins

        allow_folder_plugins()
    with _start_workers_again(Path(out), workers) as processes:
        from vitrail.engine.run import resume as go_on

        go_on(out, workers, on_round or _find_notebook(), processes)
    return _open(out)


def extend(
    run: str | Path,
    rounds: int,
    out: str | Path | None = None,
    on_round: Callable[[Progress], None] | None = None,
    workers: int | None = None,
) -> Run:
    """More rounds for a finished run, in a new folder `out` (left out: a free name beside it).

    The end is that of a run that was asked for all rounds at once, to the bit; the old folder
    stays as it is.
    """
    from vitrail.engine.extend_run import extend_folder
    from vitrail.engine.storage.run_folder import find_free_folder

    path = Path(run)
    folder = find_free_folder(path.parent, f"{path.name}-longer") if out is None else out
    extend_folder(path, folder, rounds)
    return resume(folder, on_round, workers)


def withdraw(
    run: str | Path,
    site: str,
    out: str | Path | None = None,
    on_round: Callable[[Progress], None] | None = None,
) -> Run:
    """A run again as it would have been without one site, which withdrew, in a new folder `out`.

    That is exact unlearning: the site's images have no part in what comes out. `withdrawal.json`
    in the new folder says what it cost.
    """
    from vitrail.engine.withdraw_site import withdraw_site

    return _open(withdraw_site(Path(run), site, None if out is None else Path(out), on_round))


def load(out: str | Path) -> Run:
    """Open a run folder: figures, models, and the words of the command line as methods, such as
    `.predict(images)`, `.explain(image)`, `.audit()`, `.ledger()`, `.report()`."""
    return _open(out)


def compare(
    runs: Sequence[Run | str | Path],
    figure: str = "accuracy",
    baseline: str | None = None,
    on: Literal["auto", "server", "sites"] = "auto",
    last: int = 1,
) -> ComparisonResult:
    """Methods side by side over seeds: mean, SD, test, Holm correction, effect size."""
    from vitrail.api.run import compare as compare_all

    return compare_all(runs, figure, baseline, on, last)


def __dir__() -> list[str]:
    return sorted(__all__)


def _find_notebook() -> Callable[[Progress], None] | None:
    """What shows progress where a notebook runs this, and nothing elsewhere."""
    import sys

    if "IPython" not in sys.modules:
        return None
    from vitrail.api.notebook_progress import make_notebook_progress

    return make_notebook_progress()


def _start_workers_again(folder: Path, workers: int | None) -> AbstractContextManager[Any]:
    """The workers of a stopped run; where there is nothing to go on with, the engine says so."""
    from vitrail.config import load
    from vitrail.engine.workers.processes import start_workers

    config = folder / "config.toml"
    if not config.is_file() or (folder / "server" / "finished").exists():
        return nullcontext()
    return start_workers(load(config).config.run, workers)


def _open(out: str | Path) -> Run:
    from vitrail.api.run import Run

    return Run(out)
