"""Pruning of updates: only a share of the numbers changes in a round."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from vitrail.local.session import Site
from vitrail.release.defenses.compression import Compression, CompressionOptions
from vitrail.release.defenses.defense import DEFENSES


class PruneOptions(CompressionOptions):
    """Keys of `[release.prune]`."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The share of the numbers that leave changed; at least one does."""
    select: Literal["top", "random"] = "top"
    """The largest changes, or random ones."""


@DEFENSES.register("prune")
class Prune(Compression):
    """The largest or random entries of the change; error feedback as in Stich et al. 2018
    (arXiv:1809.07599). Random entries without feedback are divided by the share: no bias."""

    Options = PruneOptions

    def compress(self, change: Tensor, spans: list[slice], site: Site) -> tuple[Tensor, int]:
        """Keep max(1, int(share * size)) entries."""
        del spans
        options = self.options
        count = min(len(change), max(1, int(options.share * len(change))))
        if options.select == "top":
            at = torch.topk(change.abs(), count, sorted=False).indices
        else:
            at = self.key(site).stream().permutation(len(change))[:count]
        sent = torch.zeros_like(change)
        sent[at] = change[at]
        if options.select == "random" and not options.feedback and count:
            sent *= len(change) / count
        return sent, 4 * count + min(4 * count, (len(change) + 7) // 8)  # places, or a bit each
