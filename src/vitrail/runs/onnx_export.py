"""ONNX: the same network for programs without Python. Written only if it gives the same numbers."""

from __future__ import annotations

import copy
import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vitrail.data.aviary.birds import derive_aviary_key, draw_birds
from vitrail.errors import ConfigError, RunError
from vitrail.models.heads.part_head import PartHead, require_part_head
from vitrail.runs.deployed import DeployedModel

Floats = npt.NDArray[np.floating[Any]]

TOLERANCE = 1e-3  # of the largest absolute logit: single precision, added up in another order
EVIDENCE = ("maps", "contributions")
_BIRDS = 6


class _Session(Protocol):
    """The one thing that is asked of a session of onnxruntime."""

    def run(self, names: list[str], feed: dict[str, Floats]) -> list[Floats]:
        """The named outputs for some inputs."""


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX file, and how far it is from the network on the images that it was checked with."""

    raw: bytes
    difference: float  # the largest, as a share of the largest absolute value of the output
    allowed: float  # what it might have been
    images: int


class _ModelWithEvidence(nn.Module):
    """Logits, the map of every unit, and what each unit gives to each logit."""

    def __init__(self, model: DeployedModel) -> None:
        super().__init__()
        self.model = model
        self.head: PartHead = require_part_head(model.network)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Images [N, C, H, W] in 0..1 to [N, classes], [N, units, h, w], [N, classes, units]."""
        network = self.model.network
        z = network.features(network.prefix((x - self.model.shift) / self.model.scale))
        measured = self.head.measure(z)
        logits = self.head.compute_logits(measured)["logits"]
        return logits, self.head.maps(z), self.head.compute_contributions(measured)


def make_onnx(
    model: DeployedModel,
    evidence: bool = False,
    metadata: Mapping[str, str] | None = None,
    images: Tensor | None = None,
) -> OnnxModel:
    """The model as an ONNX file: `images` float32 [N, C, H, W] in 0..1 to `logits`, any N.

    With `evidence`, the outputs `maps` and `contributions` stand beside the logits; the
    contributions of a class add up to its logit. The file is checked on `images`, or on a few
    embedded ones.
    """
    onnx, runtime = _import_onnx()
    if images is None or not len(images):
        images = draw_check_images(model)
    module: nn.Module = _ModelWithEvidence(model) if evidence else model
    names = ["logits", *(EVIDENCE if evidence else ())]
    raw = _trace(module.eval(), images[:2], names)
    if metadata:
        proto = onnx.load_from_string(raw)
        onnx.helper.set_model_props(proto, dict(metadata))
        raw = proto.SerializeToString()
    session = runtime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    return OnnxModel(raw, *_compare(module, session, names, images), len(images))


def draw_check_images(model: DeployedModel) -> Tensor:
    """A few embedded birds at the model's size, [N, C, H, W] in 0..1."""
    birds = draw_birds(_BIRDS, 2, derive_aviary_key(0), max(16, model.image_size)).images
    x = torch.from_numpy(birds).permute(0, 3, 1, 2).to(torch.float32) / 255
    x = x[:, :, : model.image_size, : model.image_size]
    return x.mean(1, keepdim=True).expand(-1, model.channels, -1, -1) if model.channels != 3 else x


def _trace(module: nn.Module, images: Tensor, names: Sequence[str]) -> bytes:
    """The file as torch writes it. What it cannot write is one sentence, not its whole graph."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), _silence():
        # Tracing notes every branch on a shape; here all shapes but N are constants on purpose.
        warnings.simplefilter("ignore")
        file = Path(folder, "model.onnx")
        try:
            torch.onnx.export(
                module,
                (images.contiguous(),),
                file,
                input_names=["images"],
                output_names=list(names),
                dynamic_axes={name: {0: "batch"} for name in ("images", *names)},
                dynamo=False,  # ten times quicker, and all backbones pass the check
            )
        except (torch.onnx.OnnxExporterError, RuntimeError) as err:
            reason = next(iter(str(err).splitlines()), type(err).__name__)[:160]
            raise RunError(
                f"this model cannot be written as ONNX ({reason})", hint="Use .safetensors."
            ) from err
        return file.read_bytes()


@contextmanager
def _silence() -> Iterator[None]:
    """Keep torch from printing the graph that it could not write."""
    say = torch._C._jit_onnx_log  # its switch is turned on again inside
    torch._C._jit_onnx_log = lambda *_: None
    try:
        yield
    finally:
        torch._C._jit_onnx_log = say


def _import_onnx() -> tuple[ModuleType, ModuleType]:
    try:
        import onnx
        import onnx.helper
        import onnxruntime
    except ImportError as err:
        raise ConfigError(
            f"ONNX needs the package {err.name or 'onnx'}",
            where="--out",
            hint="Install it with `pip install 'vitrail[onnx]'`.",
        ) from err
    return onnx, onnxruntime


def _compare(
    module: nn.Module, session: _Session, names: Sequence[str], images: Tensor
) -> tuple[float, float]:
    """The largest difference over one image alone and all together, and what was allowed.

    A distance near 0 loses digits in single precision, in the network as in the file. Where that
    costs the network itself more than the tolerance, twice as much is allowed.
    """
    worst, most = 0.0, TOLERANCE
    for batch in (images[:1], images):
        wanted = _run_network(module, names, batch)
        answers = session.run(list(names), {"images": batch.contiguous().numpy()})
        given = dict(zip(names, answers))
        pairs = [(name, given[name], wanted[name]) for name in names]
        if "contributions" in given:
            pairs.append(("contributions", given["contributions"].sum(2), wanted["logits"]))
        allowed = TOLERANCE
        if any(not _measure_difference(one, other) <= allowed for _, one, other in pairs):
            exact = _run_network(copy.deepcopy(module).double(), names, batch.double())
            rounding = (_measure_difference(wanted[name], exact[name]) for name in names)
            allowed = max(TOLERANCE, 2 * max(rounding))
        for name, one, other in pairs:
            worst = max(worst, _check_difference(name, _measure_difference(one, other), allowed))
        most = max(most, allowed)
    return worst, most


def _run_network(module: nn.Module, names: Sequence[str], batch: Tensor) -> dict[str, Floats]:
    with torch.inference_mode():
        answer = module(batch)
    tensors = answer if isinstance(answer, tuple) else (answer,)
    return {name: tensor.numpy() for name, tensor in zip(names, tensors)}


def _measure_difference(given: Floats, wanted: Floats) -> float:
    """max |given - wanted| / max |wanted|; infinite where the shapes differ."""
    if given.shape != wanted.shape:
        return math.inf
    return float(np.abs(given - wanted).max() / max(np.abs(wanted).max(), 1e-6))


def _check_difference(name: str, difference: float, allowed: float) -> float:
    if not difference <= allowed:
        raise RunError(
            f"the ONNX file gives other {name} than the network (by {difference:.2g} of the "
            f"largest; {allowed:.2g} is allowed)",
            hint="It was not written; use .safetensors.",
        )
    return difference
