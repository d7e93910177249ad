"""A head of every site's own on a run's global model, in memory: what such heads would answer."""

from __future__ import annotations

import numpy as np

from vitrail.engine.site_turn import Host
from vitrail.local.evaluate import compute_logits
from vitrail.local.phases.phase import Phase
from vitrail.local.session import Site
from vitrail.models.flat import Region
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation, reopen_host
from vitrail.runs.site_logits import SiteLogits, collect_answers
from vitrail.threads import one_thread


def open_global_host(run: Run) -> Host:
    """A host whose model is the global one of a finished run, with cached features."""
    return reopen_host(run, load_run_federation(run), run.model().network)


@one_thread()
def personalize_sites(run: Run, host: Host, phase: Phase) -> SiteLogits:
    """Play a phase at every site, each from the global model, and ask it about the site's held-out
    images. Nothing is written; the host's model is the global one again afterwards."""
    ctx = host.plan.context(host.plan.config.run.rounds + 1, len(run.sites))
    start, parts = host.model.values.clone(), []
    try:
        for name in host.sites:
            host.model.values.copy_(start)
            session = Site(
                name=name,
                rows=host.sites[name],
                inputs=host.inputs,
                model=host.model,
                state={},
                key=host.secret(name).at("round", ctx.round),
                shared=Region(()),
                received=start.clone(),
            )
            phase(session, ctx)
            rows = host.sites[name].test
            if len(rows):
                parts.append(compute_logits(host.model.network, host.inputs, rows).numpy())
    finally:
        host.model.values.copy_(start)
    empty = np.empty((0, ctx.classes), np.float32)
    return collect_answers(host, np.concatenate([empty, *parts]).astype(np.float32))
