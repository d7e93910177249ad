"""Who plays the turns of a run: this process, or as many worker processes as asked for."""

from __future__ import annotations

from pathlib import Path

import torch

from vitrail.config import to_stored_tree
from vitrail.data.normalize import Normalize
from vitrail.data.patients import number_patients
from vitrail.data.shared_memory import share
from vitrail.engine.federation import Federation
from vitrail.engine.plan import Plan
from vitrail.engine.resolve_config import pick_device
from vitrail.engine.site_turn import Host
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.train_ahead import count_together
from vitrail.engine.workers.pool import InProcessPool, Pool
from vitrail.engine.workers.processes import WorkerProcesses
from vitrail.engine.workers.worker_pool import WorkerPool, WorkerSetup, pack_site
from vitrail.local.inputs import Inputs
from vitrail.models.network import Network


def make_pool(
    plan: Plan,
    network: Network,
    federation: Federation,
    folder: RunFolder,
    workers: int,
    crew: WorkerProcesses,
) -> Pool:
    """A pool for a run. On a GPU one process plays all turns."""
    device = pick_device(plan.config.run.device)
    if workers > 1 and device.type == "cpu":
        setup = _make_setup(plan, federation, folder)
        return WorkerPool(crew, workers, setup, count_together(plan))
    return InProcessPool(make_host(plan, network, federation, folder.path))


def make_host(plan: Plan, network: Network, federation: Federation, folder: Path) -> Host:
    """A host in this process, with all images of a simulated federation before it."""
    inputs = Inputs(
        images=federation.images.images,
        labels=federation.images.labels,
        normalize=Normalize.of(plan.config, plan.channels),
        augment=plan.config.data.augment,
        patients=number_patients(federation.images),
        unshared=federation.unshared,
        device=pick_device(plan.config.run.device),
    )
    return Host(plan, network, inputs, federation.sites, folder)


def _make_setup(plan: Plan, federation: Federation, folder: RunFolder) -> WorkerSetup:
    images = federation.images
    store = share(images.images)
    sites = [pack_site(site) for site in federation.sites.values()]
    handles = (store.fd, *folder.lock_handle)
    header = {
        "op": "setup",
        "config": to_stored_tree(plan.config),
        "base": str(folder.path.resolve()),
        "source": str(folder.config_file),
        "classes": plan.classes,
        "channels": plan.channels,
        "handles": len(handles),
        "shape": images.images.shape,
        "device": "cpu",
        "sites": [index for index, _ in sites],
        "folder": str(folder.path.resolve()),
    }
    tensors = {
        "labels": torch.tensor(images.labels),  # a copy: a grid keeps them read-only
        "rows": torch.cat([rows for _, rows in sites]),
    }
    patients = number_patients(images)
    if patients is not None:
        tensors["patients"] = torch.from_numpy(patients)
    if federation.unshared is not None:
        tensors["unshared"] = torch.from_numpy(federation.unshared)
    return WorkerSetup(header, tensors, handles, store)
