"""An audit of a run: each site with what it legitimately has, then all of them together."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitrail.audit.consensus import averages_subspaces, read_agreement
from vitrail.audit.detection.contrast import compute_contrasts
from vitrail.audit.detection.extractor import Extractor, compute_separabilities
from vitrail.audit.detection.null_distribution import NullDistribution, load_shipped_null
from vitrail.audit.detection.separability import Separability
from vitrail.audit.federation_view import Audit, combine_audits
from vitrail.audit.lent_models import lend, load_lent_model
from vitrail.audit.remedy_plan import compute_config_digest
from vitrail.audit.site_audit import SiteAudit, audit_site
from vitrail.audit.site_view import SiteView, require_part_head
from vitrail.engine.federation import Federation
from vitrail.engine.plan import make_plan
from vitrail.engine.storage.run_end import describe_continuation
from vitrail.engine.storage.run_folder import AUDIT_TABLES_FILE
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError, suggest_name
from vitrail.files import write_json
from vitrail.release.door import Door
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import ensure_local_model, load_run_federation

_ENOUGH = 12  # test images a class below which a site's training images help out

SEPARABILITY_FILE = AUDIT_TABLES_FILE
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
    null: NullDistribution | None = None,
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
    null = null or load_shipped_null()
    chosen = tuple(dict.fromkeys(sites or run.sites))
    tables = load_separabilities(run, federation, chosen)
    for site in lenders:
        lend(run, federation, site)
    audits: list[SiteAudit] = []
    for site in chosen:
        view = load_site_view(run, federation, site, lenders)
        key = derive_server_key(run.config.run.seed).at("audit", site)
        audit = audit_site(view, compute_contrasts(tables, site), key, null, tell)
        if keep is not None:
            keep(view, audit)
        if len(chosen) > 1:
            _release(run, audit)
        audits.append(audit)
    deviations = read_agreement(run).rank_deviations() if averages_subspaces(run) else ()
    return combine_audits(audits, null, compute_config_digest(run.config), deviations)


def collect_separabilities(
    run: Run, federation: Federation, sites: Sequence[str]
) -> dict[str, Any]:
    """What is at the server of what sites told, as JSON; each site asked tells its own, once.

    A table says how well places of an image tell a site's classes apart: figures, no image.
    """
    key = derive_server_key(run.config.run.seed).at("audit")
    file = run.folder.server / SEPARABILITY_FILE
    stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    fresh = [site for site in sites if site not in stored]
    if fresh:
        some = replace(federation, sites={site: federation.sites[site] for site in fresh})
        for site, table in compute_separabilities(Extractor(*run.extractor()), some, key).items():
            door = Door(site, SiteFolder(run.path, site).ledger(), (), ())
            stored[site] = table.to_json()
            by_class = zip(run.classes, stored[site]["area"], stored[site]["counts"], strict=True)
            door.release_findings(
                "separability", {n: {"area": a, "count": c} for n, a, c in by_class}
            )
        write_json(file, stored)
    return stored


def load_separabilities(
    run: Run, federation: Federation, sites: Sequence[str]
) -> dict[str, Separability]:
    """What the sites of a run told each other, the sites asked included.

    What another site told and cannot be compared is left out, with a line in the log.
    """
    stored = collect_separabilities(run, federation, sites)
    tables = {site: _parse_table(run, site, stored[site]) for site in sites}
    usual = tables[sites[0]]
    for site, raw in stored.items():
        if site not in tables:
            try:
                tables[site] = _parse_comparable(raw, usual)
            except (KeyError, TypeError, ValueError) as err:
                run.folder.log(f"audit: without what site {site!r:.60} told: {err}")
    if len(tables) < 2:
        raise RunError(
            "an audit compares a site with others, and no other site has told its figures yet",
            where=str(run.path),
            hint="Run `vitrail audit` once for all sites, or for another one first.",
        )
    return tables


def _parse_table(run: Run, site: str, raw: dict[str, Any]) -> Separability:
    try:
        return Separability.from_json(raw)
    except (KeyError, TypeError, ValueError) as err:
        raise RunError(
            f"what site {site!r} told cannot be read ({err})",
            where=str(run.folder.server / SEPARABILITY_FILE),
            hint="Delete the file and audit all sites again.",
        ) from err


def _parse_comparable(raw: dict[str, Any], usual: Separability) -> Separability:
    table = Separability.from_json(raw)
    if not table.is_comparable(usual):
        raise ValueError("its classes or its places are not those of this model")
    return table


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
    plan, network = make_plan(run.loaded, run.classes, run.card["channels"])
    require_part_head(network)
    if plan.method.pooled or not any(stage.travels for stage in plan.stages):
        raise RunError(
            f"in a {run.config.method.name} run no site teaches another anything",
            where=where,
            hint="Audit a federation: a run of myth-gm, myth-pm or fedgrasp, say.",
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
