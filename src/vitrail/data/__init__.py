"""Sources of images, their labels, partitions over sites, injected biases.

Importing this package registers every source that Vitrail brings along.
"""

from vitrail.data import sources
from vitrail.data.aviary import birds as _birds  # noqa: F401  (registers the embedded birds)
from vitrail.data.image_set import ImageSet
from vitrail.data.load_images import SOURCES, Source, load, load_with_problems
from vitrail.data.records import Problem, Record, Records
from vitrail.registry import import_modules

import_modules(sources)

__all__ = [
    "SOURCES",
    "ImageSet",
    "Problem",
    "Record",
    "Records",
    "Source",
    "load",
    "load_with_problems",
]
