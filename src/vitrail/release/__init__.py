"""The only door out of a site: what may leave, under which defense, and the ledger of it."""

from vitrail.registry import import_modules
from vitrail.release import defenses
from vitrail.release.defenses.additive import Additive
from vitrail.release.defenses.defense import DEFENSES, Defense
from vitrail.release.defenses.noise_options import Noise
from vitrail.release.door import Door
from vitrail.release.ledger import Ledger
from vitrail.release.message import Field, Schema
from vitrail.release.setting import Setting
from vitrail.release.update import Update

import_modules(defenses)  # they register beside their definition

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
