"""What a finished run can be asked for later: its images, a host, a local reference for a site."""

from __future__ import annotations

from vitrail.engine.checkpoint import Checkpoints
from vitrail.engine.features import cached_features
from vitrail.engine.federation import Federation, dealt
from vitrail.engine.hire import host_of
from vitrail.engine.host import Host
from vitrail.engine.loaded import Run
from vitrail.engine.plan import make_plan
from vitrail.engine.pool import InProcess
from vitrail.engine.sitefolder import SiteFolder
from vitrail.errors import RunError
from vitrail.models.network import Network


def images_of(run: Run) -> Federation:
    """The images of a run and who holds which, if they are still those it was trained on."""
    federation = dealt(run.loaded)
    if not Checkpoints(run.folder.server).same_images(run.round, federation.digest()):
        raise RunError(
            "the images of this run changed since it was started: they are no longer those it "
            "was trained on",
            where=str(run.path),
            hint="Put them back as they were.",
        )
    return federation


def reopened(run: Run, federation: Federation, network: Network | None = None) -> Host:
    """A host that can play turns of a finished run, with cached features where the run had them.

    `network` is the model to begin with; left out: the run's start.
    """
    plan, fresh = make_plan(run.loaded, run.classes, run.card["channels"])
    if network is None:
        run.fill_start(fresh)
    return with_features(host_of(plan, network or fresh, federation, run.path), federation)


def with_features(host: Host, federation: Federation) -> Host:
    """The host, fed with cached features where its backbone is frozen."""
    plan, network = host.plan, host.model.network
    if plan.config.model.cache_features and network.cut:
        pool = InProcess(host)
        try:
            pool.use_features(cached_features(plan, network, federation, pool))
        finally:
            pool.close()
    return host


def ensure_local(run: Run, federation: Federation, site: str) -> None:
    """Train the site alone on the run's budget and keep the model in its folder, once."""
    if SiteFolder(run.path, site).model_file("local").exists():
        return
    pool = InProcess(reopened(run, federation))
    try:
        for _ in pool.alone([site]):
            pass
    finally:
        pool.close()
