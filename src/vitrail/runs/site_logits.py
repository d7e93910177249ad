"""What a run's models answer at its sites: logits on held-out images, kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from vitrail.engine.site_turn import Host
from vitrail.files import read_tensors, write_tensors
from vitrail.local.evaluate import compute_logits
from vitrail.methods import METHODS
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation, reopen_host
from vitrail.threads import one_thread

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_FILE = "site-logits.safetensors"


@dataclass(frozen=True)
class SiteLogits:
    """The held-out images of all sites, site by site: which rows, whose, and what was answered.

    `counts` [sites, classes] are the labels that each site trains on, `site` [N] numbers the site
    of each image among `names`.
    """

    names: tuple[str, ...]
    rows: Integers
    site: Integers
    labels: Integers
    logits: Floats
    counts: Integers


def read_site_logits(run: Run) -> SiteLogits:
    """The answers of a run: of the global model, or of each site's own where there is no other.

    They are kept in the run's folder, so that they are computed once.
    """
    file = run.path / "figures" / _FILE
    if not file.exists():
        _write(file, compute_site_logits(run))
    tensors, meta = read_tensors(file)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    return SiteLogits(names=tuple(meta["names"]), **arrays)


@one_thread()
def compute_site_logits(run: Run, host: Host | None = None, own: bool = False) -> SiteLogits:
    """The same, computed; `host` is one that was reopened already. With `own` each site's own
    model answers even if there is a global one."""
    host = host or reopen_host(run, load_run_federation(run))
    names = tuple(host.sites)
    shared = not own and not run.keeps_home and not METHODS[run.config.method.name].pooled
    network = run.model().network if shared else None
    parts = []
    for name in names:
        model = network or run.model(name).network
        rows = host.sites[name].test
        logits = compute_logits(model, host.inputs, rows) if len(rows) else None
        parts.append(
            np.empty((0, len(run.classes)), np.float32) if logits is None else logits.numpy()
        )
    return collect_answers(host, np.concatenate(parts).astype(np.float32))


def collect_answers(host: Host, logits: Floats) -> SiteLogits:
    """Logits of all sites' held-out images, site by site, with what they are answers to."""
    names, labels = tuple(host.sites), host.inputs.labels
    rows = np.concatenate([host.sites[name].test for name in names])
    return SiteLogits(
        names=names,
        rows=rows,
        site=np.repeat(np.arange(len(names)), [len(host.sites[name].test) for name in names]),
        labels=labels[rows],
        logits=logits,
        counts=np.stack(
            [
                np.bincount(labels[host.sites[name].train], minlength=logits.shape[1])
                for name in names
            ]
        ),
    )


def _write(file: Path, answers: SiteLogits) -> None:
    arrays = {k: v for k, v in vars(answers).items() if isinstance(v, np.ndarray)}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(file, tensors, {"names": list(answers.names)})
