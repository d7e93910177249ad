"""An audit of a run: each site with what it legitimately has, then all of them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from vitrail.audit.audit_tables import AuditTables, compare_tables, tell_histograms, tell_summaries
from vitrail.audit.class_look import find_look
from vitrail.audit.consensus import averages_subspaces, read_agreement
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.told_consistency import check_told
from vitrail.audit.federation_view import Audit, combine_audits
from vitrail.audit.lent_models import lend, load_lent_model
from vitrail.audit.remedy_plan import compute_config_digest
from vitrail.audit.site_audit import SiteAudit, audit_site
from vitrail.audit.site_view import SiteView
from vitrail.audit.strata_tables import explain_by_columns
from vitrail.audit.update_alarms import read_update_alarms
from vitrail.engine.federation import Federation
from vitrail.engine.plan import make_plan
from vitrail.engine.storage.run_end import describe_continuation
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError, suggest_name
from vitrail.release.door import Door
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import ensure_local_model, load_run_federation

_ENOUGH = 12  # test images a class below which a site's training images help out

OnSiteAudit = Callable[[SiteView, SiteAudit], None]


def load_site_view(
    run: Run, federation: Federation, site: str, lenders: Sequence[str] = ()
) -> SiteView:
    """A site's own images and models; the local model is trained on the spot if there is none.

    The shared model is the global one, or the site's personal one where there is no global one.
    `lenders` are sites that agreed to lend their local models.
    """
    rows = federation.sites[site]
    wanted = _ENOUGH * len(run.classes)
    chosen = rows.test if len(rows.test) >= wanted else np.concatenate([rows.test, rows.train])
    ensure_local_model(run, federation, site)
    shared = run.model(site, "personal") if run.keeps_home else run.model()
    images = federation.images
    return SiteView(
        site,
        images.images[chosen],
        images.labels[chosen],
        run.model(site, "local"),
        shared,
        {name: load_lent_model(run, name) for name in lenders if name != site},
        sizes=None if images.sizes is None else images.sizes[chosen],
    )


def audit_run(
    run: Run,
    sites: Sequence[str] | None = None,
    tell: Callable[[str], None] | None = None,
    keep: OnSiteAudit | None = None,
    lenders: Sequence[str] = (),
) -> Audit:
    """Audit some sites of a finished run (None: all), each on its own images.

    `tell` hears what is being done; `keep` gets each site's view with its audit, while it is
    there. Where several sites are audited, what each tells the others is in its ledger; so are
    the local models of `lenders`, the sites that agreed to lend theirs.
    """
    _check(run, (*(sites or ()), *lenders))
    federation = load_run_federation(run)
    chosen = tuple(dict.fromkeys(sites or run.sites))
    contrasts, tables = contrast_sites(run, federation, chosen)
    within = explain_by_columns(run, federation, tables, contrasts)
    for site in lenders:
        lend(run, federation, site)
    audits: list[SiteAudit] = []
    for site in chosen:
        view = load_site_view(run, federation, site, lenders)
        key = derive_server_key(run.config.run.seed).at("audit", site)
        of_site = [c for c in contrasts if c.site == site]
        told = tables.exchange.summaries
        looks = {c.label: find_look(told, tables.units, site, c.label) for c in of_site}
        groups = {c.label: within.get((site, c.label), {}) for c in of_site}
        audit = audit_site(view, of_site, tables.units, key, tell, groups, looks)
        if keep is not None:
            keep(view, audit)
        if len(chosen) > 1:
            _release(run, audit)
        audits.append(audit)
    deviations = read_agreement(run).rank_deviations() if averages_subspaces(run) else ()
    whole = combine_audits(audits, compute_config_digest(run.config), deviations)
    doubts = check_told(tables.exchange, tables.histograms)
    return replace(whole, doubts=doubts, updates=read_update_alarms(run))


def contrast_sites(
    run: Run, federation: Federation, sites: Sequence[str]
) -> tuple[list[Contrast], AuditTables]:
    """Let some sites tell what they have not told yet, and compare all that did."""
    tell_summaries(run, federation, sites)
    tables = tell_histograms(run, federation, sites)
    if len(tables.histograms) < 2 and (
        tables.exchange.directions or len(tables.exchange.summaries) < 2
    ):
        raise RunError(
            "an audit compares a site with others, and no other site has told its figures yet",
            where=str(run.path),
            hint="Run `vitrail audit` once for all sites. One by one it takes two rounds: every "
            "site tells its means, then every site tells its histograms.",
        )
    return compare_tables(run, tables), tables


def _check(run: Run, sites: Sequence[str]) -> None:
    """Refuse what cannot be audited, before anything is computed."""
    where = str(run.path)
    if not run.finished:
        raise RunError(
            "this run is still going, or was stopped",
            where=where,
            hint=f"An audit compares models that are done. {describe_continuation(run.end)}",
        )
    for site in sites:
        if site not in run.sites:
            raise RunError(
                f"there is no site {site!r} in this run",
                where=where,
                hint=suggest_name(site, run.sites),
            )
    plan, _ = make_plan(run.loaded, run.classes, run.card["channels"])
    if plan.method.pooled or not any(stage.travels for stage in plan.stages):
        raise RunError(
            f"in a {run.config.method.name} run no site teaches another anything",
            where=where,
            hint="Audit a federation: a run of fedavg, myth-gm or fedgrasp, say.",
        )


def _release(run: Run, audit: SiteAudit) -> None:
    """What leaves a site when the others may see its audit: figures by class, and no image."""
    door = Door(audit.site, SiteFolder(run.path, audit.site).ledger(), (), ())
    alarm = audit.alarm
    figures: dict[str, dict[str, object]] = {
        name: {"gap": gap, "spread": alarm.error(name) if alarm.images[name] > 1 else None}
        for name, gap in alarm.by_class.items()
    }
    for finding in audit.findings:
        figures.setdefault(finding.label, {}).update(finding.to_json())
    door.release_findings("audit", figures)
