"""Where an exported model comes from: hashes in its card, and whether they fit a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vitrail.engine.storage.run_end import RUN_ID_FILE
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.files import read_tensors
from vitrail.release.ledger_chain import Head, walk_chain
from vitrail.runs.opened_run import Run


@dataclass(frozen=True)
class Check:
    """One thing that was compared: what, whether it fits, and what was seen."""

    what: str
    fits: bool
    says: str


def make_provenance(run: Run) -> dict[str, Any]:
    """Hashes of the configuration that was agreed to (of a real federation its terms as well), and
    where each site's ledger ended when the model was exported."""
    heads = {}
    for site in run.sites:
        path = SiteFolder(run.path, site).path / "ledger.jsonl"
        if path.exists():
            head = walk_chain(path).head
            heads[site] = {"lines": head.lines, "hash": head.hash}
    terms = run.folder.server / RUN_ID_FILE
    return {
        "config": _hash(run.folder.config_file),
        "terms": _hash(terms) if terms.exists() else None,
        "ledger_heads": heads,
    }


def verify_model(model: Path, run: Run, run_digest: str) -> list[Check]:
    """Whether an exported model is that of a run: its file, its card, the run's files, the heads of
    the ledgers, and (of `.safetensors`) every number."""
    card = _read_card(model)
    same = hashlib.blake2b(model.read_bytes(), digest_size=16).hexdigest() == card.get("digest")
    checks = [
        Check("file", same, "is the one its card was written for" if same else "was changed"),
        _compare("run", card.get("run"), run_digest, "configuration and last checkpoint"),
    ]
    provenance = card.get("provenance")
    if not isinstance(provenance, Mapping):
        return [*checks, Check("provenance", False, "the card is older and names no hashes")]
    now = make_provenance(run)
    checks.append(_compare("config", provenance.get("config"), now["config"], "the configuration"))
    if provenance.get("terms") or now["terms"]:
        checks.append(_compare("terms", provenance.get("terms"), now["terms"], "what sites agreed"))
    checks += [_check_head(run, site, head) for site, head in provenance["ledger_heads"].items()]
    if same and model.suffix == ".safetensors":  # what was changed may be no file of tensors
        checks.append(_compare_tensors(model, run, card.get("site")))
    return checks


def _compare(what: str, then: object, now: object, noun: str) -> Check:
    return Check(what, then == now, f"{noun}: {'the same' if then == now else 'another one'}")


def _check_head(run: Run, site: str, raw: Mapping[str, Any]) -> Check:
    """A ledger may have grown since, and must not have changed."""
    head = Head(int(raw["lines"]), str(raw["hash"]))
    path = SiteFolder(run.path, site).path / "ledger.jsonl"
    if not path.exists():
        return Check(f"ledger of {site}", False, "is not in this folder")
    chain = walk_chain(path, (head.lines,))
    if chain.problem:
        return Check(f"ledger of {site}", False, chain.problem)
    fits = chain.contains(head) or (head.lines == 0 == chain.lines)
    more = f", {chain.lines - head.lines} lines more since" if chain.lines > head.lines else ""
    says = f"holds the {head.lines} lines of then{more}" if fits else "has other lines than then"
    return Check(f"ledger of {site}", fits, says)


def _compare_tensors(model: Path, run: Run, site: str | None) -> Check:
    tensors, _ = read_tensors(model)
    here = run.model(site).network.state_dict()
    equal = tensors.keys() == here.keys() and all(torch.equal(tensors[n], here[n]) for n in here)
    return Check("numbers", equal, "every tensor is the run's" if equal else "tensors differ")


def _read_card(model: Path) -> dict[str, Any]:
    path = model.with_name(f"{model.name}.json")
    if not model.is_file() or not path.is_file():
        raise RunError(
            "there is no exported model with its card here",
            where=str(model),
            hint="Keep FILE and FILE.json of `vitrail export` together.",
        )
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RunError("the card of this model is not JSON", where=str(path)) from None
    return card


def _hash(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()
