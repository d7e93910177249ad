"""Methods: one small file each. Importing this package registers them."""

import sys

from vitrail.methods.base.method import METHODS, About, Method, Options, RunSetup, make_method
from vitrail.methods.base.server import Server
from vitrail.methods.base.stage import Stage, resolve_table
from vitrail.registry import import_modules

import_modules(sys.modules[__name__])

__all__ = [
    "METHODS",
    "About",
    "Method",
    "Options",
    "RunSetup",
    "Server",
    "Stage",
    "make_method",
    "resolve_table",
]
