"""Shortcuts injected into some classes of some sites, and a record of where they are."""

from vitrail.data.bias import washes as washes  # they register themselves
