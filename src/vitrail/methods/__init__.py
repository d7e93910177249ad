"""Methods: one small file each. Importing this package registers them."""

import importlib
import pkgutil

from vitrail.methods.method import METHODS, About, Method, Options
from vitrail.methods.server import Server
from vitrail.methods.stage import Stage, answers

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["METHODS", "About", "Method", "Options", "Server", "Stage", "answers"]
