"""Sources of images, their labels, partitions over sites, injected biases.

Importing this package registers every source that Vitrail brings along.
"""

from vitrail.data import (
    aviary,
    bias,
    celeba,
    chexpert,
    cifar,
    cub200,
    dicom,
    femnist,
    folder,
    manifest,
    npz,
    parquet,
    partition,
    stanford,
    tiny_imagenet,
)
from vitrail.data.images import ImageSet
from vitrail.data.records import Problem, Record, Records
from vitrail.data.source import SOURCES, Source, load, load_with_problems

__all__ = [
    "SOURCES",
    "ImageSet",
    "Problem",
    "Record",
    "Records",
    "Source",
    "aviary",
    "bias",
    "celeba",
    "chexpert",
    "cifar",
    "cub200",
    "dicom",
    "femnist",
    "folder",
    "load",
    "load_with_problems",
    "manifest",
    "npz",
    "parquet",
    "partition",
    "stanford",
    "tiny_imagenet",
]
