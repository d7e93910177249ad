"""What a finished run can be asked for later: its images, a host, a local reference for a site."""

from __future__ import annotations

from vitrail.data.shared_memory import find_site_folder, use_site_cache
from vitrail.engine.federation import Federation, load_federation
from vitrail.engine.plan import make_plan
from vitrail.engine.site_turn import Host
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.storage.feature_cache import ensure_feature_cache
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.workers.make_pool import make_host
from vitrail.engine.workers.pool import InProcessPool
from vitrail.errors import RunError
from vitrail.models.network import Network
from vitrail.runs.opened_run import Run


def load_run_federation(run: Run) -> Federation:
    """The images of a run and who holds which, if they are still those it was trained on."""
    if (site := find_site_folder(run.path)) is not None:
        use_site_cache(site)
    if run.end == "coordinator":
        raise RunError(
            "the coordinator of a federation has no images: they are at the sites",
            where=str(run.path),
            hint="Run this at a site, on that site's folder of the run.",
        )
    federation = load_federation(run.loaded)
    if not Checkpoints(run.folder.server).same_images(run.round, federation.digest()):
        raise RunError(
            "the images of this run changed since it was started: they are no longer those it "
            "was trained on",
            where=str(run.path),
            hint="Put them back as they were.",
        )
    return federation


def reopen_host(run: Run, federation: Federation, network: Network | None = None) -> Host:
    """A host that can play turns of a finished run, with cached features where the run had them.

    `network` is the model to begin with; left out: the run's start.
    """
    plan, fresh = make_plan(run.loaded, run.classes, run.card["channels"])
    if network is None:
        run.fill_start(fresh)
    return attach_features(make_host(plan, network or fresh, federation, run.path), federation)


def attach_features(host: Host, federation: Federation) -> Host:
    """The host, fed with cached features where its backbone is frozen."""
    plan, network = host.plan, host.model.network
    if plan.config.model.cache_features and network.cut:
        pool = InProcessPool(host)
        try:
            pool.use_features(ensure_feature_cache(plan, network, federation, pool))
        finally:
            pool.close()
    return host


def ensure_local_model(run: Run, federation: Federation, site: str) -> None:
    """Train the site alone on the run's budget and keep the model in its folder, once."""
    if SiteFolder(run.path, site).model_file("local").exists():
        return
    pool = InProcessPool(reopen_host(run, federation))
    try:
        for _ in pool.train_alone([site]):
            pass
    finally:
        pool.close()
