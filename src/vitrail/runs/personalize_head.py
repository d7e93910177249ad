"""A site's own head on the saved global model of a run, at any time after it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vitrail.engine.site_turn import MODEL, OWN
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.local.evaluate import evaluate
from vitrail.local.phases.tune_head import Personalize
from vitrail.local.session import Site
from vitrail.models.flat import Region
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation, reopen_host
from vitrail.threads import one_thread

Metrics = dict[str, float | None]


@dataclass(frozen=True)
class PersonalizationResult:
    """What came of it: figures on the site's test images before and after, and the file."""

    site: str
    before: Metrics
    after: Metrics
    file: Path


@one_thread()
def personalize(
    run: Run, site: str, epochs: int | None = None, lr: float | None = None
) -> PersonalizationResult:
    """Tune only the head of the global model on a site's own images and keep it at the site.

    The result is the site's personal model; the server's files stay as they are, and
    `run.model(site, "global")` is still the model everybody shares. Epochs and rate that are
    left out are the method's own, or those of `Personalize`. Nothing is released.
    """
    network = run.model(site, "global").network  # refuses unknown sites, and runs without one
    host = reopen_host(run, load_run_federation(run), network)
    # The draws of the closing turn: the personal model of a run can be made again, to the bit.
    ctx = host.plan.context(host.plan.config.run.rounds + 1, len(run.sites))
    session = Site(
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
    rows = session.rows.test
    before = evaluate(network, host.inputs, rows, ctx.classes)
    phase(session, ctx)
    after = evaluate(network, host.inputs, rows, ctx.classes)
    folder = SiteFolder(run.path, site)
    folder.save_model(
        "personal",
        {MODEL + name: tensor for name, tensor in host.model.named.items()}
        | {OWN + name: tensor for name, tensor in session.state.items()},
    )
    return PersonalizationResult(site, before, after, folder.model_file("personal"))
