"""Named things that plug in: sources, backbones, rules, defenses, attacks, methods.

An implementation registers beside its definition, with a decorator; there is no list to edit.
A user's own module is named in `run.plugins` and does the same.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from vitrail.errors import ConfigError, VitrailError, suggest_name

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A dictionary of implementations that explains itself when a name is unknown."""

    def __init__(self, noun: str, key: str) -> None:
        self.noun = noun
        self.key = key
        self._items: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: make `name` mean the decorated class or function."""

        def keep(item: T) -> T:
            known = self._items.get(name)
            if known is not None and _origin(known) != _origin(item):
                raise ConfigError(
                    f"two {self.noun}s are called {name!r}: {_origin(known)} and {_origin(item)}",
                    where="run.plugins",
                    hint="Rename one of them.",
                )
            self._items[name] = item
            return item

        return keep

    def __getitem__(self, name: str) -> T:
        try:
            return self._items[name]
        except KeyError:
            raise ConfigError(
                f"there is no {self.noun} called {name!r}",
                where=self.key,
                hint=suggest_name(name, self._items),
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items))

    def __len__(self) -> int:
        return len(self._items)


def _origin(item: object) -> str:
    return f"{getattr(item, '__module__', '?')}.{getattr(item, '__qualname__', item)}"


def import_modules(package: ModuleType) -> None:
    """Import every module of a package, so that what is defined in them registers itself."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


_PERMISSION = "VITRAIL_ALLOW_PLUGINS"
FOLDER_WORDS = {"VITRAIL_FOLDER_WORDS": "1"}
"""The environment of a process whose command line came out of a run folder, not from a user."""


def allow_folder_plugins() -> None:
    """Let this process, and those it starts, execute plug-ins that run folders name."""
    os.environ[_PERMISSION] = "1"


def load_plugins(names: tuple[str, ...], base: Path, stored: bool = False) -> None:
    """Import the user's modules, once: dotted names, or `.py` files relative to the config file.

    A `stored` list is that of a run folder, which may be somebody else's: what it names is
    executed if this process has done so already for a file of the user's, or if that was allowed.
    The same holds for every list where the command line itself came out of a run folder.
    """
    stored = stored or FOLDER_WORDS.items() <= os.environ.items()
    for name in names:
        if stored and os.environ.get(_PERMISSION) != "1" and not _is_executed(name, base):
            raise ConfigError(
                f"this run folder names a plug-in, {str(base / name)!r}, and opening a folder runs "
                "no code of it",
                where="run.plugins",
                hint="Look at the file; --allow-plugins executes it.",
            )
        if not name.endswith(".py"):
            try:
                importlib.import_module(name)
            except ImportError as err:
                raise ConfigError(
                    f"plugin {name!r} cannot be imported ({err})",
                    where="run.plugins",
                    hint="Install it, or name a .py file relative to the config file.",
                ) from err
            except VitrailError:
                raise
            except Exception as err:
                raise _describe_plugin_error(err) from err
            continue
        path = (base / name).resolve()
        if not path.is_file():
            raise ConfigError(
                f"plugin file {name!r} does not exist under {base}", where="run.plugins"
            )
        _execute_once(path)


def _execute_once(path: Path) -> None:
    """Execute a plug-in file, unless this process has executed it as it stands now.

    The module of a file remembers what it was made from: a file that changed, as under a
    notebook, and another file of the same name are executed.
    """
    module_name, made_from = _name_module(path)
    if getattr(sys.modules.get(module_name), "__made_from__", None) == made_from:
        return
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None  # its name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as err:
        del sys.modules[module_name]
        if isinstance(err, VitrailError):
            raise
        raise _describe_plugin_error(err) from err
    module.__dict__["__made_from__"] = made_from


def _name_module(path: Path) -> tuple[str, tuple[str, str]]:
    """What the module of a plug-in file is called, and what it is made from."""
    digest = hashlib.blake2b(path.read_bytes()).hexdigest()
    return f"vitrail_plugin_{path.stem}", (str(path), digest)


def _is_executed(name: str, base: Path) -> bool:
    """Whether this process has executed a plug-in as it stands now."""
    if not name.endswith(".py"):
        return name in sys.modules
    path = (base / name).resolve()
    if not path.is_file():
        return False
    module_name, made_from = _name_module(path)
    return getattr(sys.modules.get(module_name), "__made_from__", None) == made_from


def _describe_plugin_error(err: Exception) -> ConfigError:
    """What a plugin, or what it imports, stumbled over, and on which line of its file."""
    if isinstance(err, SyntaxError):
        where, why = f"{err.filename}, line {err.lineno}", f"is not valid Python ({err.msg})"
    else:
        frames = traceback.extract_tb(err.__traceback__)
        frame = next(f for f in (*frames[1:], frames[0]) if "importlib" not in f.filename)
        where = f"{frame.filename}, line {frame.lineno}"
        why = f"cannot be loaded ({type(err).__name__}: {err})"
    return ConfigError(f"this plugin {why}", where=where)
