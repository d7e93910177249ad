"""A model that leaves its run folder: tensors or ONNX, and a card that says how to use it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vitrail.config.schema import Model
from vitrail.data.normalize import Normalize
from vitrail.errors import ConfigError, RunError, VitrailError
from vitrail.files import read_tensors, write_bytes, write_json, write_tensors
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.exported_card import FORMAT, make_card
from vitrail.runs.onnx_export import OnnxModel, make_onnx
from vitrail.runs.opened_run import Run
from vitrail.runs.predict_images import read_images

_SUFFIXES = (".safetensors", ".onnx")
_CHECKED = 16  # of the user's images that an ONNX file is checked with


def export(
    run: Run,
    out: str | Path,
    site: str | None = None,
    force: bool = False,
    evidence: bool = False,
    images: Path | None = None,
) -> tuple[Path, Path]:
    """Write a model as `.safetensors` or `.onnx`, and its card beside it, in `NAME.json`.

    Returns both paths. Nothing is overwritten unless `force`. An ONNX file is checked against
    the network before it is written, on `images` or on embedded ones; with `evidence` it also
    tells what the logits are made of.
    """
    out = Path(out)
    if out.suffix not in _SUFFIXES:
        raise ConfigError(
            f"a model cannot be written as {out.name!r}",
            where="--out",
            hint="Use a name in .safetensors or .onnx.",
        )
    if out.suffix != ".onnx" and (evidence or images is not None):
        raise ConfigError(
            "evidence and images to check with are for ONNX files",
            where="--evidence" if evidence else "--images",
            hint="Use a name in .onnx; a .safetensors file holds all that `explain` needs.",
        )
    card_file = name_card(out)
    for path in (out, card_file):
        if path.exists() and not force:
            raise RunError(
                "this file exists", where=str(path), hint="Choose another name, or add --force."
            )
    model, card = run.model(site), make_card(run, site)
    if out.suffix == ".onnx":
        checked = None if images is None else read_check_images(run, images)
        made = make_onnx(model, evidence, make_metadata(card), checked)
        write_bytes(out, made.raw)
        card |= describe_onnx(made, evidence, embedded=checked is None)
    else:
        write_tensors(out, model.network.state_dict(), {"format": FORMAT})
    write_json(card_file, {**card, "file": out.name, "digest": _digest(out)})
    return out, card_file


def name_card(model: Path) -> Path:
    """The card's file: the model's whole name and `.json`, so that two formats have two cards."""
    return model.with_name(f"{model.name}.json")


def read_check_images(run: Run, path: Path) -> torch.Tensor:
    """A few images of the user, [N, C, H, W] in 0..1, read as the run read its own."""
    pixels = read_images(run, path, _CHECKED)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32) / 255


def make_metadata(card: Mapping[str, Any]) -> dict[str, str]:
    """What an ONNX file says about itself, as text; what is not a plain word is JSON."""
    keys = {
        "format": card["format"],
        "classes": json.dumps(card["classes"]),
        "preprocessing": json.dumps(card["input"]),
        "run": card["run"],
        "round": str(card["round"]),
        "audit": card["audit"]["verdict"],
        "audit_finding": card["audit"]["finding"],
        "guarantee": card["guarantee"]["kind"],
        "epsilon": json.dumps(card["guarantee"]["epsilon"]),
        "delta": json.dumps(card["guarantee"]["delta"]),
        "versions": json.dumps(card["versions"]),
    }
    return {f"vitrail.{name}": text for name, text in keys.items()}


def describe_onnx(made: OnnxModel, evidence: bool, embedded: bool) -> dict[str, Any]:
    """What the card of an ONNX file says beside the usual."""
    whose = "embedded images" if embedded else "images of the user"
    lines: dict[str, Any] = {
        "agreement": {
            "images": f"{made.images} {whose}, one alone and all together",
            "largest_difference": made.difference,
            "tolerance": made.allowed,
            "relative_to": "the largest absolute value of the output",
        }
    }
    if evidence:
        lines["evidence"] = {
            "maps": "[N, units, h, w]: how much of each unit is at each place",
            "contributions": "[N, classes, units]: over units they add up to the logits",
        }
    return lines


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
    beside = name_card(path)
    card = _read_card(beside if beside.exists() else path.with_suffix(".json"))  # an older export
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
        model = Model.model_validate_json(json.dumps({**card["model"], "runtime": "torch"}))
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
