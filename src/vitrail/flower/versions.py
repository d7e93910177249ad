"""What must be the same at both ends of a federation, so that both compute the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import torch

from vitrail import __version__
from vitrail.flower.plain_text import clean_text
from vitrail.models.onnx_prefix import describe_runtime

WIRE_SCHEMA = 3
"""What messages hold. Another number is another language."""
_NAMES = ("vitrail", "torch", "flwr", "schema", "runtime")


def list_versions(runtime: str = "torch") -> dict[str, str]:
    """The versions of this end, for terms with this `model.runtime`."""
    return {
        "vitrail": __version__,
        "torch": torch.__version__.partition("+")[0],  # a build for another device, same release
        "flwr": version("flwr"),
        "schema": str(WIRE_SCHEMA),
        "runtime": "torch" if runtime == "torch" else describe_runtime(runtime),
    }


def find_version_conflict(theirs: Mapping[str, str], runtime: str = "torch") -> str | None:
    """Why another end cannot be trusted to compute the same, in one sentence, or None.

    `runtime` is what the terms compute frozen stages with.
    """
    ours = list_versions(runtime)
    if ours["runtime"] == "none":
        return (
            "the terms compute frozen stages with onnxruntime (model.runtime), which is not "
            "installed at this site"
        )
    for name in _NAMES:
        other = clean_text(str(theirs.get(name, "none")), 40)
        if other != ours[name]:
            return (
                f"the coordinator has {name} {other} and this site has {ours[name]}, which need "
                "not give the same numbers"
            )
    return None
