"""Attribution maps: which pixels a logit depends on, for any network, in chunks.

A network of a run or a plain classifier of `models.build` will do. They leave nothing behind: no
hooks, no gradients, the mode it was in. Frozen stages are passed like the others. The formulas are
captum's, but for relevance propagation, which is ours (`explain.lrp`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError, DataError
from vitrail.models.backbone import Backbone
from vitrail.models.network import Network
from vitrail.registry import Registry
from vitrail.rng import Key, derive_server_key, seed_torch

CHUNK = 32


@dataclass(frozen=True)
class Settings:
    """What some attributions need beside the image.

    `steps` points of the path of integrated gradients, which starts at `baseline` (in what the
    network sees, so 0 is the middle of the range with most normalizations); `samples` noisy
    copies for SmoothGrad, `noise` times each image's range as their SD, drawn from `key`.
    Relevance propagation starts with 1 at the class (`one-hot`) or with its `logit`.
    """

    steps: int = 32
    baseline: float = 0.0
    samples: int = 25
    noise: float = 0.15
    start: Literal["one-hot", "logit"] = "one-hot"
    key: Key = field(default_factory=lambda: derive_server_key(0).at("attribution"))


Attribution = Callable[[nn.Module, Tensor, Tensor, Settings, int], Tensor]
ATTRIBUTIONS: Registry[Attribution] = Registry("attribution", "attribution")


def attribute(
    method: str,
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    settings: Settings | None = None,
    chunk: int = CHUNK,
) -> Tensor:
    """Raw maps [N, H, W] of normalized images [N, C, H, W] for one class each, channels summed."""
    rule = ATTRIBUTIONS[method]
    if images.dim() != 4 or len(targets) != len(images):
        raise DataError(
            f"attribution needs images [N, C, H, W] and a class for each, not "
            f"{tuple(images.shape)} and {tuple(targets.shape)}"
        )
    chosen = settings or Settings()
    maps = [images.new_zeros((0, *images.shape[2:]))]
    with use_eval_mode(model), torch.inference_mode(False), torch.enable_grad():
        for at in range(0, len(images), chunk):
            x = images[at : at + chunk].detach().clone().contiguous()
            maps.append(rule(model, x, targets[at : at + chunk], chosen, at).detach())
    return torch.cat(maps)


@contextmanager
def use_eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every module goes back to the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def compute_last_map(model: nn.Module, x: Tensor) -> Tensor:
    """The output of the backbone's last stage, with gradients through frozen stages too.

    The layout is plain: see `models.network.channels_last_is_safe`.
    """
    backbone = model.backbone if isinstance(model, Network) else model
    if not isinstance(backbone, Backbone):
        raise ConfigError(
            f"{type(model).__name__} has no stages that say where its last map is",
            where="attribution",
            hint="Use gradient, or a backbone of vitrail.models.",
        )
    end = model.end if isinstance(model, Network) else None
    for _, step in backbone.stages()[:end]:
        x = step(x.contiguous())
    return x


def compute_logits_from_map(model: nn.Module, features: Tensor) -> Tensor:
    """Logits from the output of the backbone's last stage."""
    if isinstance(model, Backbone):
        return model.classify(features)
    assert isinstance(model, Network)
    logits: Tensor = model.head(model.head.reduce(model.neck(features)))["logits"]
    return logits


def compute_logits(model: nn.Module, x: Tensor) -> Tensor:
    """Images to logits, with gradients all the way."""
    if isinstance(model, Network | Backbone):
        return compute_logits_from_map(model, compute_last_map(model, x))
    logits: Tensor = model(x)
    return logits


def _make_logit_function(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """What captum differentiates; images do not see each other in evaluation mode."""
    return partial(compute_logits, model)


@ATTRIBUTIONS.register("gradient")
def gradient(network: nn.Module, x: Tensor, targets: Tensor, settings: Settings, at: int) -> Tensor:
    """The gradient of the logit (Simonyan et al. 2014, arXiv:1312.6034)."""
    del settings, at
    values: Tensor = (
        _import_captum()
        .Saliency(_make_logit_function(network))
        .attribute(x.requires_grad_(), targets, abs=False)
    )
    return values.sum(1)


@ATTRIBUTIONS.register("gradient-x-input")
def gradient_x_input(
    network: nn.Module, x: Tensor, targets: Tensor, settings: Settings, at: int
) -> Tensor:
    """The gradient times the input (Shrikumar et al. 2017, arXiv:1605.01713)."""
    del settings, at
    values: Tensor = (
        _import_captum()
        .InputXGradient(_make_logit_function(network))
        .attribute(x.requires_grad_(), targets)
    )
    return values.sum(1)


@ATTRIBUTIONS.register("smoothgrad")
def smoothgrad(
    network: nn.Module, x: Tensor, targets: Tensor, settings: Settings, at: int
) -> Tensor:
    """The mean gradient over noisy copies (Smilkov et al. 2017, arXiv:1706.03825)."""
    attr = _import_captum()
    tunnel = attr.NoiseTunnel(attr.Saliency(_make_logit_function(network)))
    maps = []
    # image by image, each with draws of its own, so that the chunks do not matter
    for row, (image, target) in enumerate(zip(x, targets, strict=True)):
        with seed_torch(settings.key.at("image", at + row)):
            smooth: Tensor = tunnel.attribute(
                image[None].clone().requires_grad_(),
                nt_type="smoothgrad",
                nt_samples=settings.samples,
                nt_samples_batch_size=CHUNK,
                stdevs=settings.noise * float(image.max() - image.min()),
                target=target,
                abs=False,
            )
        maps.append(smooth.detach().sum(1))
    return torch.cat(maps)


@ATTRIBUTIONS.register("integrated-gradients")
def integrated_gradients(
    network: nn.Module, x: Tensor, targets: Tensor, settings: Settings, at: int
) -> Tensor:
    """The gradient along a straight path from a baseline (Sundararajan et al. 2017,
    arXiv:1703.01365), by Gauss-Legendre quadrature; it adds up to the difference of logits."""
    del at
    values: Tensor = (
        _import_captum()
        .IntegratedGradients(_make_logit_function(network))
        .attribute(
            x,
            baselines=settings.baseline,
            target=targets,
            n_steps=settings.steps,
            internal_batch_size=max(CHUNK, len(x)),
        )
    )
    return values.sum(1).to(x.dtype)


class _MapToLogits(nn.Module):
    """From the output of the backbone's last stage to logits. The gradient ends at that map, so
    what is before it is passed once, without one, and frozen stages do not matter."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.last = nn.Identity()
        self._rest = partial(compute_logits_from_map, model)

    def forward(self, features: Tensor) -> Tensor:
        return self._rest(self.last(features))


@ATTRIBUTIONS.register("grad-cam")
def grad_cam(network: nn.Module, x: Tensor, targets: Tensor, settings: Settings, at: int) -> Tensor:
    """The last stage's channels, weighted by their mean gradient, where they speak for the class
    (Selvaraju et al. 2017, arXiv:1610.02391); bilinear at the size of the image."""
    del settings, at
    attr = _import_captum()
    with torch.no_grad():
        features = compute_last_map(network, x)
    ending = _MapToLogits(network)
    cam = attr.LayerGradCam(ending, ending.last).attribute(
        features.requires_grad_(), targets, relu_attributions=True
    )
    upsampled: Tensor = attr.LayerAttribution.interpolate(cam, x.shape[2:], "bilinear")
    return upsampled[:, 0]


def _import_captum() -> Any:
    """captum's attributions; imported when they are asked for, because they take half a second."""
    with warnings.catch_warnings():  # in a notebook tqdm complains that widgets are missing
        warnings.filterwarnings("ignore", message="IProgress not found")
        from captum import attr

    return attr
