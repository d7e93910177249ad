"""The network of a run: a backbone that may be frozen up to a stage, a neck, and a head."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from vitrail.config.schema import Model
from vitrail.errors import ConfigError, nearest
from vitrail.models.backbone import Backbone, Norm
from vitrail.models.build import build_backbone
from vitrail.models.head import HEADS, Head, Outputs
from vitrail.models.weights import load_weights
from vitrail.rng import Key, scope


class Network(nn.Module):
    """Images -> `prefix` (frozen; its result can be cached) -> `rest` (trained) -> outputs."""

    def __init__(self, backbone: Backbone, neck: nn.Module, head: Head, cut: int = 0) -> None:
        super().__init__()
        self.backbone = backbone
        self.neck = neck
        self.head = head
        self.cut = cut
        steps = len(backbone.stages())
        self.pools_in_prefix = cut == steps and isinstance(neck, nn.Identity)
        self._any_layout = channels_last_is_safe(self)
        for name, parameter in self.named_parameters():
            if self.is_frozen(name):
                parameter.requires_grad_(False)

    def is_frozen(self, tensor: str) -> bool:
        """Whether a tensor belongs to the stages before the cut."""
        if not tensor.startswith("backbone."):
            return False
        stage = self.backbone.stage_of(tensor.removeprefix("backbone."))
        return stage in {name for name, _ in self.backbone.stages()[: self.cut]}

    def prefix(self, x: Tensor) -> Tensor:
        """The frozen stages, without gradients and with their statistics as they are."""
        if self.cut == 0:
            return x
        with torch.no_grad():
            x = self._laid_out(x)
            for _, step in self.backbone.stages()[: self.cut]:
                x = step(x)
            return self.head.reduce(x) if self.pools_in_prefix else x

    def rest(self, z: Tensor) -> Outputs:
        """What is trained: the remaining stages, the neck and the head."""
        z = self._laid_out(z)
        for _, step in self.backbone.stages()[self.cut :]:
            z = step(z)
        z = self.neck(z)
        outputs: Outputs = self.head(z if self.pools_in_prefix else self.head.reduce(z))
        return outputs

    def _laid_out(self, x: Tensor) -> Tensor:
        return x if self._any_layout else x.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images [N, C, H, W] to logits [N, classes]."""
        return self.rest(self.prefix(x))["logits"]

    def train(self, mode: bool = True) -> Network:
        """Training mode for what is trained; frozen stages stay in evaluation mode."""
        super().train(mode)
        if mode and self.cut:
            frozen = {name for name, _ in self.backbone.stages()[: self.cut]}
            for name, module in self.backbone.named_modules():
                if name and self.backbone.stage_of(name) in frozen:
                    module.training = False
        return self


def channels_last_is_safe(network: nn.Module) -> bool:
    """Whether maps may lie in memory channels last, which is quicker on a CPU.

    In torch 2.13 the backward pass of a strided 1x1 convolution over fewer channels than a
    vector register holds (8, or 16 with AVX-512) writes beyond its buffer in that layout,
    and the process crashes sooner or later.
    """
    return not any(
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and module.stride != (1, 1)
        and module.in_channels < 16
        for module in network.modules()
    )


def make_network(
    model: Model, head: str, channels: int, classes: int, key: Key, base: Path = Path()
) -> tuple[Network, dict[str, str]]:
    """Build the network of a run from its configuration, and say where its weights come from.

    Everybody who holds the key builds the same tensors: that is how sites start equal.
    """
    norm: Norm = "group" if model.norm == "group" else "batch"
    backbone = build_backbone(model.backbone, channels, model.width, norm, key.at("backbone"))
    card = {"weights": "random"}
    if model.weights is not None:
        report = load_weights(backbone, model.weights, base)
        card = {"weights": Path(model.weights).name, "digest": report.digest}
    with scope(key.at("head")):
        neck, top = HEADS[head](backbone.channels, classes, model)
    return Network(backbone, neck, top, _cut(backbone, model)), card


def _cut(backbone: Backbone, model: Model) -> int:
    """How many stages `model.frozen` freezes: all, none, or up to and with the one named."""
    names = [name for name, _ in backbone.stages()]
    if isinstance(model.frozen, bool):
        return len(names) if model.frozen else 0
    if model.frozen not in names:
        raise ConfigError(
            f"{model.backbone} has no stage {model.frozen!r}",
            where="model.frozen",
            hint=nearest(model.frozen, names),
        )
    return names.index(model.frozen) + 1
