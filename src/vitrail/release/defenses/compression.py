"""Compression of what leaves: the change is made smaller, and the rest is kept for later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from vitrail.config.schema import Section
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.parts import TensorSpec
from vitrail.release.defenses.additive import (
    check_touches,
    compute_norm,
    is_finite,
    withhold_update,
)
from vitrail.release.defenses.defense import Defense
from vitrail.release.setting import MODEL, Setting
from vitrail.release.update import Update


class CompressionOptions(Section):
    """The key that both compressions share."""

    feedback: bool = True
    """Keep what was left out at the site and add it to the next change."""


class Compression(Defense):
    """Replaces the change of the trained Euclidean tensors by one that takes fewer bytes.

    What travels is still dense float32; `coded_bytes` is what a code for it would take, and the
    ledger's `bytes` is what left. Statistics, frames and what goes beside the model stay whole.
    An update that is not finite leaves as NaN throughout and leaves the memory as it was.
    """

    Options: ClassVar[type[Section]] = CompressionOptions

    def compress(self, change: Tensor, spans: list[slice], site: Site) -> tuple[Tensor, int]:
        """A smaller change instead of this flat one, and its bytes; `spans` are its tensors."""
        raise NotImplementedError(f"{type(self).__name__} must define compress")

    def touches(self, setting: Setting) -> tuple[str, ...]:
        """The trained Euclidean tensors of the model."""
        leaving = set(setting.leaves)
        named = (MODEL + spec.name for spec in setting.layout.specs if _is_compressible(spec))
        return tuple(name for name in named if name in leaving)

    def check(self, setting: Setting) -> None:
        """It needs a trained tensor that leaves."""
        check_touches(self, setting)

    def apply(self, update: Update, site: Site, ctx: Context) -> tuple[Update, Metrics]:
        """The update with its change compressed, and how much of the change is missing."""
        del ctx
        if not update.tensors:
            return update, {}
        if not is_finite(update.tensors):
            return withhold_update(update), {"withheld": 1.0}
        received = site.model.layout.views(site.received.detach().cpu())
        named = {
            MODEL + spec.name: spec.name
            for spec in site.model.layout.specs
            if _is_compressible(spec)
        }
        base = {n: received[named[n]] for n in update.tensors if n in named}
        spans = _find_spans(base)
        change = _flatten({name: update.tensors[name] - base[name] for name in base})
        memory = site.state.get(f"release/{self.name}")
        wanted = change if memory is None or len(memory) != len(change) else change + memory
        sent, coded = self.compress(wanted, spans, site)
        if self.options.feedback:
            site.state[f"release/{self.name}"] = wanted - sent
        tensors = {
            name: base[name] + sent[span].view_as(base[name])
            for name, span in zip(base, spans, strict=True)
        }
        whole = sum(
            t.numel() * t.element_size() for n, t in update.tensors.items() if n not in base
        )
        figures = {
            "update_l2": compute_norm({"": change}),
            "error_l2": compute_norm({"": wanted - sent}),
            "kept": float((sent != 0).sum()),
            "coded_bytes": float(coded + whole),
        }
        return replace(update, tensors={**update.tensors, **tensors}), figures


def _is_compressible(spec: TensorSpec) -> bool:
    return spec.trainable and spec.geometry == "euclidean"


def _find_spans(tensors: Mapping[str, Tensor]) -> list[slice]:
    spans, at = [], 0
    for tensor in tensors.values():
        spans.append(slice(at, at + tensor.numel()))
        at += tensor.numel()
    return spans


def _flatten(tensors: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors.values()]) if tensors else torch.empty(0)
