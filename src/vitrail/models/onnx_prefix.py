"""The frozen stages of a network in onnxruntime: exported once, kept on disk, run on one thread.

A file is named by the weights, the shape of an image and the versions of what made it. Images go
through in batches of one size, the last one padded, so that no feature depends on how many images
came with it. Gradients are not known here: what needs them runs the stages in PyTorch.
"""

from __future__ import annotations

import copy
import hashlib
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.data.shared_memory import ensure_cache_folder
from vitrail.errors import RunError
from vitrail.files import write_bytes
from vitrail.threads import one_thread

if TYPE_CHECKING:
    from vitrail.models.network import Network

BATCH = 8
TOLERANCE = 1e-4
"""Of the largest absolute feature: single precision, added up in another order."""
PACKAGES = ("onnx", "onnxruntime")
_FORMAT = 1
_INPUT, _OUTPUT = "images", "features"


def find_missing_package() -> str | None:
    """The first package that this runtime needs and that is not installed."""
    for name in PACKAGES:
        try:
            version(name)
        except PackageNotFoundError:
            return name
    return None


def describe_runtime(runtime: str) -> str:
    """What frozen stages are computed with here, and its version; `none` if it is not installed."""
    if runtime != "onnx":
        return "torch " + torch.__version__.partition("+")[0]
    return "none" if find_missing_package() else "onnxruntime " + version("onnxruntime")


class PrefixSessions:
    """The open sessions of one network. A copy of the network opens its own."""

    def __init__(self) -> None:
        self._kept: list[Tensor] = []  # as long as they live, nothing else has their address
        self._marks: list[tuple[int, int]] = []
        self._sessions: dict[tuple[tuple[int, ...], bool], Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> PrefixSessions:
        return PrefixSessions()

    def __reduce__(self) -> tuple[type[PrefixSessions], tuple[()]]:
        return PrefixSessions, ()

    def run(self, network: Network, x: Tensor, pooled: bool) -> Tensor:
        """The frozen stages' output on normalized images [N, C, H, W]."""
        if not len(x):
            return network.run_prefix_in_torch(x, pooled)
        session = self._open(network, tuple(x.shape[1:]), pooled and network.pools_in_prefix)
        images = x.detach().cpu().contiguous().numpy()
        return torch.from_numpy(_run_padded(session, images)).to(x.device)

    def _open(self, network: Network, shape: tuple[int, ...], pooled: bool) -> Any:
        tensors = list(_list_frozen(network).values())
        if any(t.is_inference() for t in tensors):  # they do not count their changes
            self._sessions.clear()
        marks = [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors]
        if marks != self._marks:
            self._sessions.clear()
            self._marks, self._kept = marks, [t.detach() for t in tensors]
        if (shape, pooled) not in self._sessions:
            self._sessions[shape, pooled] = open_session(network, shape, pooled)
        return self._sessions[shape, pooled]


def open_session(network: Network, shape: tuple[int, ...], pooled: bool) -> Any:
    """A session for images of a shape [C, H, W], from the file in the cache or a new one.

    Checked against the network itself each time: a file that is damaged or stale is never used.
    """
    _, runtime = _import_packages()
    path = ensure_cache_folder() / f"prefix-{_digest(network, shape, pooled)}.onnx"
    with torch.inference_mode(False), torch.no_grad(), one_thread():
        if path.exists():
            try:
                session = _make_session(runtime, path.read_bytes())
                _check(network, session, shape, pooled)
                return session
            except Exception:  # written by a crash or another hand: make it anew
                path.unlink(missing_ok=True)
        raw = _export(_Prefix(network, pooled), shape)
        session = _make_session(runtime, raw)
        _check(network, session, shape, pooled)
    write_bytes(path, raw)  # whole or not there, also where two processes write it at once
    return session


class _Prefix(nn.Module):
    """The frozen stages alone."""

    def __init__(self, network: Network, pooled: bool) -> None:
        super().__init__()
        self.network, self.pooled = copy.deepcopy(network).cpu().eval(), pooled

    def forward(self, x: Tensor) -> Tensor:
        return self.network.run_prefix_in_torch(x, self.pooled)


def _export(prefix: _Prefix, shape: tuple[int, ...]) -> bytes:
    """The stages as ONNX for a batch of images: normalization folded in, constants worked out."""
    onnx, runtime = _import_packages()
    images = torch.zeros(BATCH, *shape)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        # Tracing notes every branch on a shape; here all shapes are constants on purpose.
        warnings.simplefilter("ignore")
        traced, folded = Path(name, "traced.onnx"), Path(name, "folded.onnx")
        try:
            torch.onnx.export(
                prefix.eval(),
                (images,),
                traced,
                input_names=[_INPUT],
                output_names=[_OUTPUT],
                dynamo=False,  # five times quicker, and the graph comes to the same
            )
        except (torch.onnx.OnnxExporterError, RuntimeError) as err:
            reason = next(iter(str(err).splitlines()), type(err).__name__)[:160]
            raise RunError(
                f"the frozen stages cannot be written as ONNX ({reason})",
                where="model.runtime",
                hint='Set model.runtime = "torch".',
            ) from err
        level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC  # nothing of this processor
        _make_session(runtime, traced.read_bytes(), level, str(folded))
        graph = onnx.load(str(folded))
        _merge_pads(onnx, graph)
        raw: bytes = graph.SerializeToString()
        return raw


def _merge_pads(onnx: ModuleType, model: Any) -> None:
    """Let convolutions pad for themselves: with nodes for it, maps change layout back and forth."""
    graph = model.graph
    constants = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    readers = Counter(name for node in graph.node for name in node.input)
    convolutions = {node.input[0]: node for node in graph.node if node.op_type == "Conv"}
    for pad in [node for node in graph.node if node.op_type == "Pad"]:
        convolution = convolutions.get(pad.output[0])
        margins = _read_margins(pad, constants)
        if convolution is None or margins is None or readers[pad.output[0]] != 1:
            continue
        inside = [a for a in convolution.attribute if a.name == "pads"]
        before = list(inside[0].ints) if inside else [0, 0, 0, 0]
        if any(a.name == "auto_pad" and a.s != b"NOTSET" for a in convolution.attribute):
            continue
        for attribute in inside:
            convolution.attribute.remove(attribute)
        total = [a + b for a, b in zip(before, margins)]
        convolution.attribute.append(onnx.helper.make_attribute("pads", total))
        convolution.input[0] = pad.input[0]
        graph.node.remove(pad)


def _read_margins(pad: Any, constants: Mapping[str, Any]) -> list[int] | None:
    """Top, left, bottom, right of a node that pads maps with zeros; None if it does otherwise."""
    if any(a.name == "mode" and a.s != b"constant" for a in pad.attribute):
        return None
    if len(pad.input) != 2 and not (len(pad.input) == 3 and not _is_nonzero(pad, constants)):
        return None
    amounts = constants.get(pad.input[1])
    if amounts is None or len(amounts) != 8 or amounts[[0, 1, 4, 5]].any() or (amounts < 0).any():
        return None
    return [int(amounts[i]) for i in (2, 3, 6, 7)]


def _is_nonzero(pad: Any, constants: Mapping[str, Any]) -> bool:
    name = pad.input[2]
    return bool(name) and (name not in constants or bool(constants[name].any()))


def _make_session(
    runtime: ModuleType, raw: bytes, level: Any = None, written: str | None = None
) -> Any:
    """A session on one thread, so that bits are the same however many processes there are."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    if level is not None:
        options.graph_optimization_level = level
    if written is not None:
        options.optimized_model_filepath = written
    return runtime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])


def _run_padded(session: Any, images: Any) -> Any:
    """All images in batches of one size; what pads the last one is dropped."""
    parts = []
    for at in range(0, len(images), BATCH):
        batch = images[at : at + BATCH]
        missing = BATCH - len(batch)
        if missing:
            batch = np.concatenate([batch, np.zeros((missing, *batch.shape[1:]), batch.dtype)])
        parts.append(session.run([_OUTPUT], {_INPUT: batch})[0][: BATCH - missing])
    return np.concatenate(parts)


def _check(network: Network, session: Any, shape: tuple[int, ...], pooled: bool) -> None:
    """Refuse a session that gives other features than the network, on one image of noise."""
    noise = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    device = next(iter(_list_frozen(network).values())).device
    modes = {module: module.training for module in network.modules()}
    try:
        network.eval()
        wanted = network.run_prefix_in_torch(noise.to(device), pooled).cpu().numpy()
    finally:
        for module, mode in modes.items():
            module.training = mode
    given = _run_padded(session, noise.numpy())
    difference = np.abs(given - wanted).max() / max(float(np.abs(wanted).max()), 1e-6)
    if given.shape != wanted.shape or not difference <= TOLERANCE:
        raise RunError(
            f"onnxruntime gives other features than PyTorch (by {difference:.2g} of the largest; "
            f"{TOLERANCE:.0e} is allowed)",
            where="model.runtime",
            hint='Set model.runtime = "torch".',
        )


def _list_frozen(network: Network) -> dict[str, Tensor]:
    """The tensors of the stages before the cut; a stage's own statistics are among them."""
    tensors = (*network.backbone.named_parameters(), *network.backbone.named_buffers())
    return {name: tensor for name, tensor in tensors if network.is_frozen(f"backbone.{name}")}


def _digest(network: Network, shape: tuple[int, ...], pooled: bool) -> str:
    """A name for what is exported: weights, structure, shape, and the versions that matter."""
    settings = [
        _FORMAT,
        BATCH,
        shape,
        network.cut,
        network.end,
        type(network.head).reduce.__qualname__ if pooled else "",
        type(network.backbone).__qualname__,
        repr(network.backbone),
        *(version(name) for name in ("torch", *PACKAGES, "vitrail")),
    ]
    hasher = hashlib.blake2b(repr(settings).encode(), digest_size=16)
    for name, tensor in _list_frozen(network).items():
        hasher.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return hasher.hexdigest()


def _import_packages() -> tuple[ModuleType, ModuleType]:
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
        import onnxruntime
    except ImportError as err:
        raise RunError(
            "the frozen stages of this run are computed with onnxruntime, and the package "
            f"{err.name or 'onnxruntime'} is not installed",
            where="model.runtime",
            hint="Install it with `pip install 'vitrail[onnx]'`.",
        ) from err
    return onnx, onnxruntime
