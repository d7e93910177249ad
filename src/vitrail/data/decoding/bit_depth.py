"""How many bits the values of deep images really use: 12-bit data in 16-bit files is common.

Read as 16 bits, such images are nearly black. A whole data set is read alike: as `data.bits` says,
and with "auto" by the smallest usual depth that holds the largest value of any image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vitrail.config.schema import Data
from vitrail.data.decoding.decode import Decoder, Header, Payload, UnreadableError, choose_depth
from vitrail.data.decoding.payload import map_ordered, read_payloads
from vitrail.data.records import Problem, Record

_MOST = 0.95  # of the images: if so many need fewer bits than all together, that is told


@dataclass(frozen=True)
class BitDepth:
    """What is known of the deep images of a set: how many there are, their largest values, and the
    bits that all of them are read with."""

    bits: int
    highest: tuple[int, ...]
    decided: bool = True  # from the images; else the configuration said so

    def describe(self) -> str:
        """One sentence: what was found, what was assumed, and how to say otherwise."""
        count = len(self.highest)
        images = "1 image has" if count == 1 else f"{count} images have"
        how = 'data.bits = "auto"' if self.decided else "data.bits says so"
        return (
            f"{images} more than 8 bits, with values up to {max(self.highest)}: "
            f"read as {self.bits} bits ({how})"
        )

    def find_problems(self) -> list[Problem]:
        """Whether a few images alone make all the others dark."""
        ranked = sorted(self.highest)
        usual = choose_depth(ranked[int(_MOST * (len(ranked) - 1))])
        beyond = sum(value >= 2**usual for value in ranked)
        if not self.decided or not beyond:
            return []
        sentence = (
            f"{beyond} of {len(ranked)} deep images have values beyond {usual} bits, so all are "
            f"read as {self.bits} bits and most look dark; data.bits = {usual} refuses those few"
        )
        return [Problem("data.bits", "suspicious", sentence)]


def measure_depth(values: Iterable[int | None], data: Data) -> BitDepth | None:
    """The depth of a set from the largest value of each deep image; None where none is deep."""
    highest = tuple(value for value in values if value is not None)
    if not highest:
        return None
    if data.bits == "auto":
        return BitDepth(choose_depth(max(highest)), highest)
    return BitDepth(data.bits, highest, decided=False)


def find_depth(
    rows: Sequence[Record], heads: Sequence[Header], decoder: Decoder, data: Data
) -> BitDepth | None:
    """The depth that the deep images among `rows` are read with; only "auto" needs to open them.

    A file that cannot be decoded says nothing here; whoever decodes it will say why.
    """
    deep = [row for row, head in zip(rows, heads) if head.deep]
    if not deep or decoder.highest is None:
        return None
    if data.bits != "auto":
        return BitDepth(data.bits, (2**data.bits - 1,) * len(deep), decided=False)
    measure = decoder.highest

    def work(item: Payload) -> int | None:
        return measure(item, data)

    results = map_ordered(work, read_payloads(deep))
    return measure_depth((x for x in results if not isinstance(x, UnreadableError)), data)


def fix_depth(data: Data, depth: BitDepth | None) -> Data:
    """The section with the bits that were decided on."""
    return data if depth is None else data.model_copy(update={"bits": depth.bits})
