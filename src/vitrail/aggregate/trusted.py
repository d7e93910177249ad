"""FLTrust: updates count as far as they point where the server's own trusted images point."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.aggregate.rule import RULES, Metrics, PerSiteRule, Tensors
from vitrail.errors import RunError


@RULES.register("fltrust")
class FLTrust(PerSiteRule):
    """Changes g_k, cut or stretched to the length of the server's own change g_0 and weighed by
    relu(cos(g_k, g_0)) (Cao et al. 2021, arXiv:2012.13995, algorithm 2).

    g_0 is what the sent model changes by when the server trains it, as sites do, on a small set of
    trusted images with labels (`[data.public]`). Where no update points the same way as g_0 at
    all, the model stays as it was sent, which the paper leaves open.
    """

    weighs = False
    trusts = True

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The mean by trust; how much trust there was, and how many sites had any."""
        del weights
        if self.trusted is None:
            raise RunError("fltrust has no update of the server's own to compare with")
        own, changes = self.trusted - sent, stack - sent
        length = torch.linalg.vector_norm(changes, dim=1).clamp(min=1e-300)
        reach = torch.linalg.vector_norm(own)
        trust = (changes @ own / (length * reach.clamp(min=1e-300))).clamp(min=0)
        total = trust.sum()
        figures = {
            "trust": float(trust.mean()),
            "trusted_sites": float((trust > 0).sum()),
        }
        if float(total) == 0:
            return self.group.unpack(sent), figures
        return self.group.unpack(sent + (trust * reach / length / total) @ changes), figures
