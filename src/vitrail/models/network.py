"""The network of a run: a backbone that may be frozen up to a stage, a neck, and a head."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from vitrail.config.schema import Model
from vitrail.errors import ConfigError, suggest_name
from vitrail.models.backbone import Backbone, Norm
from vitrail.models.build import build_backbone
from vitrail.models.heads.head import HEADS, Head, Outputs
from vitrail.models.onnx_prefix import PrefixSessions, describe_runtime
from vitrail.models.weights import load_weights
from vitrail.rng import Key, seed_torch
from vitrail.threads import one_thread


class Network(nn.Module):
    """Images -> `prefix` (frozen; its result can be cached) -> `rest` (trained) -> outputs."""

    def __init__(
        self,
        backbone: Backbone,
        neck: nn.Module,
        head: Head,
        cut: int = 0,
        end: int | None = None,
        channels: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.neck = neck
        self.head = head
        self.cut = cut
        self.end = len(backbone.stages()) if end is None else end
        self.channels = backbone.channels if channels is None else channels  # of the last map
        self.pools_in_prefix = cut == self.end and isinstance(neck, nn.Identity)
        self._any_layout = channels_last_is_safe(self)
        self.runtime: Literal["torch", "onnx"] = "torch"  # what `prefix` is computed with
        self._sessions = PrefixSessions()
        for name, parameter in self.named_parameters():
            if self.is_frozen(name):
                parameter.requires_grad_(False)

    def is_frozen(self, tensor: str) -> bool:
        """Whether a tensor belongs to the stages before the cut, or to those not used at all."""
        if not tensor.startswith("backbone."):
            return False
        stage = self.backbone.stage_of(tensor.removeprefix("backbone."))
        return stage not in {name for name, _ in self.backbone.stages()[self.cut : self.end]}

    def prefix(self, x: Tensor, pooled: bool = True) -> Tensor:
        """The frozen stages, without gradients and with their statistics as they are.

        Where the head's first step is theirs too, `pooled = False` gives the map before it.
        With the runtime "onnx" by onnxruntime; while the network is traced, and in double
        precision, by PyTorch.
        """
        if self.cut == 0:
            return x
        if self.runtime == "onnx" and x.dtype == torch.float32 and not _is_traced():
            return self._sessions.run(self, x, pooled)
        return self.run_prefix_in_torch(x, pooled)

    def run_prefix_in_torch(self, x: Tensor, pooled: bool = True) -> Tensor:
        """The frozen stages by PyTorch, whatever the runtime is."""
        with torch.no_grad():
            x = self._set_memory_format(x)
            for _, step in self.backbone.stages()[: self.cut]:
                x = step(x)
            return self.head.reduce(x) if self.pools_in_prefix and pooled else x

    def rest(self, z: Tensor) -> Outputs:
        """What is trained: the remaining stages, the neck and the head."""
        outputs: Outputs = self.head(self.features(z))
        return outputs

    def features(self, z: Tensor) -> Tensor:
        """What the head sees: the remaining stages, the neck, and the head's first step."""
        z = self._set_memory_format(z)
        for _, step in self.backbone.stages()[self.cut : self.end]:
            z = step(z)
        z = self.neck(z)
        return z if self.pools_in_prefix else self.head.reduce(z)

    def compute_metrics(self) -> dict[str, float]:
        """What can be said about the neck's and the head's tensors alone, for the metrics."""
        of_neck = getattr(self.neck, "compute_metrics", None)
        return {**(of_neck() if of_neck is not None else {}), **self.head.compute_metrics()}

    def _set_memory_format(self, x: Tensor) -> Tensor:
        return x if self._any_layout else x.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images [N, C, H, W] to logits [N, classes]."""
        return self.rest(self.prefix(x))["logits"]

    def train(self, mode: bool = True) -> Network:
        """Training mode for what is trained; frozen stages stay in evaluation mode.

        A whole frozen backbone is not walked through again: a turn of a small head would spend
        most of its time there.
        """
        trained = {name for name, _ in self.backbone.stages()[self.cut : self.end]}
        if not trained:
            self.training = mode
            self.neck.train(mode)
            self.head.train(mode)
            if self.backbone.training:
                self.backbone.eval()
            return self
        super().train(mode)
        if mode and self.cut:
            for name, module in self.backbone.named_modules():
                if name and self.backbone.stage_of(name) not in trained:
                    module.training = False
        return self


def _is_traced() -> bool:
    return torch._C._get_tracing_state() is not None or torch.compiler.is_compiling()


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


@one_thread()  # two threads factorize a random matrix to other bits
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
    end = len(backbone.stages()) if model.until is None else _count_stages(backbone, model, "until")
    cut = (end if model.frozen else 0) if isinstance(model.frozen, bool) else None
    if cut is None:
        cut = _count_stages(backbone, model, "frozen")
        if cut > end:
            raise ConfigError(
                f"stage {model.frozen!r} comes after the last one that is used",
                where="model.frozen",
                hint="Name an earlier stage, or write true.",
            )
    depth = _count_channels(backbone, channels, end)
    with seed_torch(key.at("head")):
        neck, top = HEADS[head](depth, classes, model)
    network = Network(backbone, neck, top, cut, end, depth)
    if model.runtime == "onnx":
        network.runtime = "onnx"
    if cut:
        card["runtime"] = describe_runtime(network.runtime)
    return network, card


def _count_stages(backbone: Backbone, model: Model, key: Literal["frozen", "until"]) -> int:
    """How many stages there are up to and with the one that a key names."""
    names = [name for name, _ in backbone.stages()]
    wanted = str(getattr(model, key))
    if wanted not in names:
        raise ConfigError(
            f"{model.backbone} has no stage {wanted!r}",
            where=f"model.{key}",
            hint=suggest_name(wanted, names),
        )
    return names.index(wanted) + 1


@torch.no_grad()
def _count_channels(backbone: Backbone, channels: int, end: int) -> int:
    """The channels of the map after some stages; a small image tells."""
    if end == len(backbone.stages()):
        return backbone.channels
    x = torch.zeros(1, channels, 64, 64)
    mode = backbone.training
    backbone.eval()
    for _, step in backbone.stages()[:end]:
        x = step(x)
    backbone.train(mode)
    return int(x.shape[1])
