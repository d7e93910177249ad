"""The classes of the embedded birds: each is one combination of part variants, and nothing else.

Class 0 is a combination chosen by the seed; every next class changes exactly one part of the
class before it, each part in its turn, as long as an unused neighbor exists. So the first few
classes are close relatives, and class `c` is the same bird however many classes there are.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from vitrail.errors import ConfigError
from vitrail.rng import Key

PARTS: tuple[str, ...] = ("beak", "crest", "wing bar", "tail", "belly")
"""Part names; `part_mask` holds the index of a part plus one, and 0 where there is none."""

# The words a variant adds to the name of its class. An empty word is the plain variant.
WORDS: tuple[tuple[str, ...], ...] = (
    ("finch", "sunbird", "hawk", "toucan"),  # beak: cone, needle, hook, broad
    ("", "spiked", "crowned", "plumed"),  # crest: none, one spike, three feathers, swept back
    ("", "bar-winged", "double-barred", "dot-winged"),  # wing bar: none, one, two, dots
    ("", "long-tailed", "fork-tailed", "fan-tailed"),  # tail: short, long, fork, fan
    ("", "spotted", "banded", "streaked"),  # belly: plain, spots, across, along
)
MOST = math.prod(len(words) for words in WORDS)
"""The number of different birds that can be drawn."""

Bird = tuple[int, ...]
Variants = npt.NDArray[np.int64]


def draw_variants(classes: int, key: Key) -> Variants:
    """The variant of every part of every class, [classes, parts]."""
    if not 2 <= classes <= MOST:
        raise ConfigError(
            f"{classes} classes of birds cannot be drawn",
            where="data.aviary.classes",
            hint=f"Use 2 to {MOST}.",
        )
    draw = key.at("classes").numpy()
    counts = [len(words) for words in WORDS]
    bird: Bird = tuple(int(draw.integers(n)) for n in counts)
    unused = dict.fromkeys(itertools.product(*map(range, counts)))
    turn = draw.permutation(len(PARTS))
    chosen: list[Bird] = []
    while True:
        chosen.append(bird)
        del unused[bird]
        if len(chosen) == classes:
            return np.array(chosen, dtype=np.int64)
        near = _neighbor(bird, unused, np.roll(turn, 1 - len(chosen)), draw)
        # Late in a long list every neighbor may be taken: then the closest bird that is left.
        last = bird
        bird = near or min(unused, key=lambda other: sum(a != b for a, b in zip(other, last)))


def _neighbor(
    bird: Bird, unused: dict[Bird, None], turn: Variants, draw: np.random.Generator
) -> Bird | None:
    """An unused bird that differs in one part, the first possible one in the order `turn`."""
    for part in turn:
        for variant in draw.permutation(len(WORDS[part])):
            other = (*bird[:part], int(variant), *bird[part + 1 :])
            if other in unused:
                return other
    return None


def name_classes(table: Variants) -> tuple[str, ...]:
    """A name such as "spotted crowned fork-tailed finch" for every row of variants."""
    order = ("belly", "crest", "wing bar", "tail", "beak")
    columns = [PARTS.index(part) for part in order]
    return tuple(" ".join(filter(None, (WORDS[p][row[p]] for p in columns))) for row in table)


def find_differences(table: Variants) -> npt.NDArray[np.bool_]:
    """Which parts tell class a from class b, [classes, classes, parts]."""
    return np.not_equal(table[:, None, :], table[None, :, :])
