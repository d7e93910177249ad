"""What an audit of a finished run needs: its images, and a local reference for each site."""

from __future__ import annotations

from vitrail.data.normalize import Normalize
from vitrail.engine.checkpoint import Checkpoints
from vitrail.engine.federation import Federation, assemble
from vitrail.engine.host import Host
from vitrail.engine.loaded import Run
from vitrail.engine.plan import make_plan
from vitrail.engine.pool import InProcess
from vitrail.engine.settle import pick_device
from vitrail.engine.sitefolder import SiteFolder
from vitrail.errors import RunError
from vitrail.files import read_tensors
from vitrail.local.inputs import Inputs


def images_of(run: Run) -> Federation:
    """The images of a run and who holds which, if they are still those it was trained on."""
    federation = assemble(run.loaded)
    _, meta = read_tensors(Checkpoints(run.folder.server).path(run.round))
    if meta["data"] != federation.digest():
        raise RunError(
            "the images of this run changed since it was started",
            where=str(run.path),
            hint="Put them back as they were.",
        )
    return federation


def ensure_local(run: Run, federation: Federation, site: str) -> None:
    """Train the site alone on the run's budget and keep the model in its folder, once."""
    if SiteFolder(run.path, site).model_file("local").exists():
        return
    plan, network = make_plan(run.loaded, run.classes, run.card["channels"])
    run.fill_frozen(network)
    inputs = Inputs(
        images=federation.images.images,
        labels=federation.images.labels,
        normalize=Normalize.of(plan.config, plan.channels),
        augment=plan.config.data.augment,
        device=pick_device(plan.config.run.device),
    )
    pool = InProcess(Host(plan, network, inputs, federation.sites, run.path))
    try:
        for _ in pool.alone([site]):
            pass
    finally:
        pool.close()
