"""Tables that only a reproduction needs; importing this package registers them."""

import sys

from vitrail.registry import import_modules

import_modules(sys.modules[__name__])
