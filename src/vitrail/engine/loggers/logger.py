"""What a logger is, and the loggers of a run as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from vitrail.errors import ConfigError
from vitrail.registry import Registry

Row = Mapping[str, Any]
_KEYS = frozenset({"at", "round", "site"})  # they say which figure it is


class Logger:
    """Writes the rows of `metrics.jsonl` to another tool as well.

    It is made when a run starts or goes on; `target` is what stands behind the colon of
    `run.loggers`, else empty: then it writes below the run folder. Nothing of the result depends on
    it, and one that fails is left out for the rest of the run.
    """

    package: ClassVar[str] = ""  # what must be installed for it, by its name on import
    extra: ClassVar[str] = ""  # the extra of ours that brings it

    def __init__(self, folder: Path, target: str, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.target = target
        self.settings = settings

    def start(self, begun: int) -> None:
        """Open what is written to; rows of rounds after `begun` come again."""

    def log(self, rows: Sequence[Row]) -> None:
        """Write some rows."""
        raise NotImplementedError(f"{type(self).__name__} must log")

    def close(self) -> None:
        """The run ends or stops here."""


LOGGERS: Registry[type[Logger]] = Registry("logger", "run.loggers")


def iterate_figures(rows: Iterable[Row], server: str) -> Iterator[tuple[str, int, float]]:
    """The numbers of some rows: name (`accuracy`, `north/accuracy` of a site), round, value."""
    for row in rows:
        place = "" if row["site"] == server else f"{row['site']}/"
        for name, value in row.items():
            if name not in _KEYS and isinstance(value, int | float):
                yield f"{place}{name}", int(row["round"]), float(value)


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers that do not exist, and those whose package is not there."""
    for text in names:
        name = text.partition(":")[0]
        logger = LOGGERS[name]
        if logger.package and not _is_importable(logger.package):
            raise ConfigError(
                f"the logger {name!r} needs the package {logger.package}, which is not installed",
                where="run.loggers",
                hint=f"Install it with `pip install 'vitrail[{logger.extra}]'`."
                if logger.extra
                else "Install it.",
            )


def _is_importable(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


class LoggerGroup:
    """All loggers of a run. One that fails says so in the log and is left out from there on."""

    def __init__(
        self,
        names: Sequence[str],
        folder: Path,
        settings: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._loggers: dict[str, Logger] = {}
        for text in names:
            name, _, target = text.partition(":")
            self._loggers[text] = LOGGERS[name](folder, target, settings)

    def start(self, begun: int) -> None:
        """Before the first row of this process."""
        self._do("started", lambda logger: logger.start(begun))

    def log(self, rows: Sequence[Row]) -> None:
        """Some rows of the metrics."""
        self._do("used", lambda logger: logger.log(rows))

    def close(self) -> None:
        """After the last row of this process."""
        self._do("closed", lambda logger: logger.close())

    def _do(self, verb: str, act: Callable[[Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            try:
                act(logger)
            except Exception as err:  # a tool beside the run must never end the run
                del self._loggers[name]
                self._say(f"the logger {name!r} cannot be {verb} and is left out: {err}")
