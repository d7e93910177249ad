"""What the server trains with: a model of its own and, where a method needs some, public images."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from vitrail.local.evaluate import compute_logits
from vitrail.local.inputs import Inputs, Rows
from vitrail.models.flat import FlatModel


@dataclass(frozen=True)
class ServerTrainer:
    """A model that is nobody else's, how pixels become its inputs, and the public images.

    `image` is the shape [height, width, channels] of the sites' images. Nothing of it
    lasts: what a later round builds on belongs into the server's values and state.
    """

    model: FlatModel
    inputs: Inputs  # of the public images; none for methods that need none
    image: tuple[int, int, int]

    @property
    def rows(self) -> Rows:
        """All public images."""
        return np.arange(len(self.inputs.images), dtype=np.int64)

    def load(self, values: Tensor) -> FlatModel:
        """The model with these values, in evaluation mode."""
        self.model.values.copy_(values)
        self.model.reset_counters()
        self.model.network.eval()
        return self.model

    def compute_logits(self, values: Tensor, rows: Rows) -> Tensor:
        """What a model says of some public images, [len(rows), classes], on the CPU."""
        return compute_logits(self.load(values).network, self.inputs, rows)

    def digest(self) -> str:
        """A fingerprint of the public images and labels, so that a resume notices other ones."""
        hasher = hashlib.blake2b(repr(self.inputs.images.shape).encode(), digest_size=16)
        hasher.update(np.ascontiguousarray(self.inputs.images).reshape(-1).data)
        if self.inputs.labels.any():  # labels count for trusted images only
            hasher.update(np.ascontiguousarray(self.inputs.labels).data)
        return hasher.hexdigest()
