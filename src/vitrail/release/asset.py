"""Assets: what is large and does not change, such as shared images. Sent once, named by digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from vitrail.release.message import digest


@dataclass(frozen=True)
class Asset:
    """Named tensors that belong together. The digest says which they are."""

    digest: str
    tensors: Mapping[str, Tensor]

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> Asset:
        """The asset that some tensors make."""
        kinds = {n: [str(t.dtype), list(t.shape)] for n, t in tensors.items()}
        return Asset(digest({"kinds": kinds}, tensors), dict(tensors))

    @property
    def bytes(self) -> int:
        """Its size on the wire."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())


_PREFIX = "asset/"


def pack_assets(assets: Iterable[Asset]) -> dict[str, Tensor]:
    """Assets as tensors of a message, each name saying which asset it belongs to."""
    return {
        f"{_PREFIX}{asset.digest}/{name}": tensor
        for asset in assets
        for name, tensor in asset.tensors.items()
    }


def unpack_assets(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[Asset]]:
    """The tensors of a message that are no asset's, and the assets it brings.

    An asset's digest is that of what arrived, whatever its tensors were called.
    """
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith(_PREFIX)}
    parts: dict[str, dict[str, Tensor]] = {}
    for name in tensors:
        if name.startswith(_PREFIX):
            digest, _, inner = name.removeprefix(_PREFIX).partition("/")
            parts.setdefault(digest, {})[inner] = tensors[name]
    return others, [Asset.of(part) for part in parts.values()]
