"""Quantization of updates: a change in few bits, one scale for each tensor."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from vitrail.local.session import Site
from vitrail.release.defenses.compression import Compression, CompressionOptions
from vitrail.release.defenses.defense import DEFENSES


class QuantizeOptions(CompressionOptions):
    """Keys of `[release.quantize]`."""

    bits: Annotated[int, Field(ge=2, le=16)] = 8
    """Bits of a number, its sign included."""
    rounding: Literal["stochastic", "nearest"] = "stochastic"
    """Stochastic rounding has no bias; the nearest step has the smaller error."""


@DEFENSES.register("quantize")
class Quantize(Compression):
    """Each tensor's change in whole multiples of its largest entry / (2^(bits-1) - 1)
    (Alistarh et al. 2017, arXiv:1610.02132, with the maximum as the scale)."""

    Options = QuantizeOptions

    def compress(self, change: Tensor, spans: list[slice], site: Site) -> tuple[Tensor, int]:
        """Round tensor by tensor; a tensor that did not change stays as it is."""
        levels = 2 ** (self.options.bits - 1) - 1
        source = self.key(site).stream()
        sent = torch.zeros_like(change)
        for span in spans:
            part = change[span].double()
            largest = float(part.abs().max()) if len(part) else 0.0
            if largest == 0.0:
                continue
            steps = part * (levels / largest)
            if self.options.rounding == "nearest":
                steps = steps.round()
            else:
                steps = (steps + source.uniform(part.shape).to(part.dtype)).floor()
            sent[span] = (steps.clamp(-levels, levels) * (largest / levels)).float()
        return sent, (len(change) * self.options.bits + 7) // 8 + 4 * len(spans)
