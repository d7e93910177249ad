"""Hostile sites in simulation: what they do to their images and to their updates."""

import sys

from vitrail.poisoning.attack import POISONINGS, HostileView, Poisoning
from vitrail.registry import import_modules

import_modules(sys.modules[__name__])

__all__ = ["POISONINGS", "HostileView", "Poisoning"]
