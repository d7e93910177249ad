"""A site's own head on the saved global model of a run, at any time after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vitrail.data.normalize import Normalize
from vitrail.engine.checkpoint import Checkpoints
from vitrail.engine.features import cached_features
from vitrail.engine.federation import Federation, assemble
from vitrail.engine.host import MODEL, OWN, Host
from vitrail.engine.loaded import Run
from vitrail.engine.plan import make_plan
from vitrail.engine.pool import InProcess
from vitrail.engine.settle import pick_device
from vitrail.engine.sitefolder import SiteFolder
from vitrail.errors import RunError
from vitrail.files import read_tensors
from vitrail.local.evaluate import evaluate
from vitrail.local.inputs import Inputs
from vitrail.local.personalize import Personalize
from vitrail.local.session import Context, Site
from vitrail.models.flat import Region

Figures = dict[str, float | None]


@dataclass(frozen=True)
class Personalized:
    """What came of it: figures on the site's test images before and after, and the file."""

    site: str
    before: Figures
    after: Figures
    file: Path


def personalize(
    run: Run, site: str, epochs: int | None = None, lr: float | None = None
) -> Personalized:
    """Tune only the head of the global model on a site's own images and keep it at the site.

    The result is the site's personal model; the server's files stay as they are, and
    `run.model(site, "global")` is still the model everybody shares. Epochs and rate that are
    left out are the method's own, or those of `Personalize`. Nothing is released.
    """
    host, ctx = _host(run, site)
    own = Site(
        name=site,
        rows=host.sites[site],
        inputs=host.inputs,
        model=host.model,
        state=run.own(site, "personal"),
        key=host.secret(site).at("round", ctx.round),
        shared=Region(()),
        received=host.model.values.clone(),
    )
    phase = Personalize(
        epochs or getattr(ctx.options, "personal_epochs", 0) or Personalize.epochs,
        lr or getattr(ctx.options, "personal_lr", 0.0) or Personalize.lr,
    )
    network, rows = host.model.network, own.rows.test
    before = evaluate(network, host.inputs, rows, ctx.classes)
    phase(own, ctx)
    after = evaluate(network, host.inputs, rows, ctx.classes)
    folder = SiteFolder(run.path, site)
    folder.save_model(
        "personal",
        {MODEL + name: tensor for name, tensor in host.model.named.items()}
        | {OWN + name: tensor for name, tensor in own.state.items()},
    )
    return Personalized(site, before, after, folder.model_file("personal"))


def _host(run: Run, site: str) -> tuple[Host, Context]:
    """A host that holds the global model, and the context of the run's closing turn."""
    network = run.model(site, "global").network  # refuses unknown sites, and runs without one
    loaded = run.folder.open()
    plain = loaded.config.model.model_copy(update={"weights": None})
    loaded = replace(loaded, config=loaded.config.model_copy(update={"model": plain}))
    plan, _ = make_plan(loaded, run.classes, run.card["channels"])
    federation = assemble(loaded)
    _check_same(run, federation)
    inputs = Inputs(
        images=federation.images.images,
        labels=federation.images.labels,
        normalize=Normalize.of(plan.config, plan.channels),
        augment=plan.config.data.augment,
        device=pick_device(plan.config.run.device),
    )
    host = Host(plan, network, inputs, federation.sites, run.path)
    if plan.config.model.cache_features and network.cut:
        pool = InProcess(host)
        try:
            pool.use_features(cached_features(plan, network, federation, pool))
        finally:
            pool.close()
    # The draws of the closing turn: the personal model of a run can be made again, to the bit.
    return host, plan.context(plan.config.run.rounds + 1, len(run.sites))


def _check_same(run: Run, federation: Federation) -> None:
    """Refuse images that are not those the run was made with."""
    _, meta = read_tensors(Checkpoints(run.folder.server).path(run.round))
    if meta["data"] != federation.digest():
        raise RunError(
            "the images of this run changed since it was started",
            where=str(run.path),
            hint="Put them back as they were.",
        )
