"""Who plays the turns of a run: this process, or as many worker processes as asked for."""

from __future__ import annotations

from pathlib import Path

import torch

from vitrail.crew import Crew
from vitrail.data.normalize import Normalize
from vitrail.data.store import share
from vitrail.engine.federation import Federation
from vitrail.engine.folder import RunFolder
from vitrail.engine.host import Host
from vitrail.engine.plan import Plan
from vitrail.engine.pool import InProcess, Pool
from vitrail.engine.settle import pick_device
from vitrail.engine.workers import Setup, Workers, pack_site
from vitrail.local.inputs import Inputs
from vitrail.models.network import Network


def hire(
    plan: Plan,
    network: Network,
    federation: Federation,
    folder: RunFolder,
    workers: int,
    crew: Crew,
) -> Pool:
    """A pool for a run. On a GPU one process plays all turns."""
    device = pick_device(plan.config.run.device)
    if workers > 1 and device.type == "cpu":
        return Workers(crew, workers, _setup(plan, federation, folder))
    return InProcess(host_of(plan, network, federation, folder.path))


def host_of(plan: Plan, network: Network, federation: Federation, folder: Path) -> Host:
    """A host in this process, with all images of a simulated federation before it."""
    inputs = Inputs(
        images=federation.images.images,
        labels=federation.images.labels,
        normalize=Normalize.of(plan.config, plan.channels),
        augment=plan.config.data.augment,
        device=pick_device(plan.config.run.device),
    )
    return Host(plan, network, inputs, federation.sites, folder)


def _setup(plan: Plan, federation: Federation, folder: RunFolder) -> Setup:
    images = federation.images
    store = share(images.images)
    sites = [pack_site(site) for site in federation.sites.values()]
    handles = (store.fd, *folder.lock_handle)
    header = {
        "op": "setup",
        "config": plan.config.model_dump(mode="json", exclude_none=True),
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
        "labels": torch.from_numpy(images.labels),
        "rows": torch.cat([rows for _, rows in sites]),
    }
    return Setup(header, tensors, handles, store)
