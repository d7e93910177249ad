"""Training on shared images: a second batch in every step, drawn in cycles from all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.augment import augment
from vitrail.errors import RunError
from vitrail.local.inputs import draw_epoch
from vitrail.local.session import Site
from vitrail.local.terms import Batch
from vitrail.models.flat import FlatModel, keep_statistics
from vitrail.rng import Key


class SharedBatches:
    """A pull: the gradient of the cross-entropy on the next batch of shared images.

    Shared images are no longer the site's secret, so what clips and noises the gradients of its
    own images leaves these alone. With `statistics` the running statistics of BatchNorm see shared
    batches too, as they would in a plain second forward pass; the model is used on whole images.
    """

    def __init__(
        self,
        site: Site,
        pixels: Tensor,
        targets: Tensor,
        batch_size: int,
        weight: float = 1.0,
        statistics: bool = False,
    ) -> None:
        shape = tuple(site.inputs.images.shape[1:])
        if tuple(pixels.shape[1:]) != shape:
            raise RunError(
                f"shared images have the shape {list(pixels.shape[1:])}, not {list(shape)}",
                where=site.name,
                hint="All sites must use one image_size and one number of channels.",
            )
        self.site, self.weight, self.statistics = site, weight, statistics
        self.pixels, self.targets = pixels, targets
        key = site.key.at("shared")
        self._views = key.at("views").torch()
        self._cycle = self._positions(min(batch_size, len(targets)), key)

    def __call__(self, model: FlatModel) -> None:
        """Add the gradient to that of the site's own batch."""
        self.loss(model).backward()  # type: ignore[no-untyped-call]

    def loss(self, model: FlatModel) -> Tensor:
        """The weighted loss on the next batch."""
        x, labels = self.next()
        network = model.network
        with nullcontext() if self.statistics else keep_statistics(network):
            logits = network.rest(network.prefix(x))["logits"]
        return self.weight * F.cross_entropy(logits, labels)

    def next(self) -> Batch:
        """Normalized images and labels of the next batch."""
        at = next(self._cycle)
        inputs = self.site.inputs
        self.site.aside += len(at)
        x = inputs.normalize(self.pixels[at] * 255).to(inputs.device)
        if inputs.augment.active:
            x = augment(x, inputs.augment, self._views)
        return x, self.targets[at].to(inputs.device)

    def _positions(self, batch_size: int, key: Key) -> Iterator[Tensor]:
        order = key.at("batches").torch()
        while True:
            yield from draw_epoch(len(self.targets), batch_size, order)


def read_shared_images(site: Site, name: str) -> tuple[Tensor, Tensor]:
    """The pixels and labels of an asset, or nothing at all where there is none."""
    asset = site.assets.get(name)
    if asset is None:
        return torch.empty(0), torch.empty(0, dtype=torch.int64)
    return asset["pixels"], asset["targets"]
