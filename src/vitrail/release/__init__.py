"""The only door out of a site: what may leave, under which defense, and the ledger of it."""

import importlib
import pkgutil

from vitrail.release.additive import Additive
from vitrail.release.defense import DEFENSES, Defense
from vitrail.release.door import Door
from vitrail.release.ledger import Ledger
from vitrail.release.message import Field, Schema
from vitrail.release.options import Noise
from vitrail.release.setting import Setting
from vitrail.release.update import Update

for _module in pkgutil.iter_modules(__path__):  # defenses register beside their definition
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "DEFENSES",
    "Additive",
    "Defense",
    "Door",
    "Field",
    "Ledger",
    "Noise",
    "Schema",
    "Setting",
    "Update",
]
