"""An audit of a run: each site with what it legitimately has, then all of them together."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitrail.audit.consensus import agreement, averages_subspaces
from vitrail.audit.contrast import contrasts
from vitrail.audit.desk import Desk, parts
from vitrail.audit.extract import Extractor, tables_of
from vitrail.audit.federation import Audit, together
from vitrail.audit.lend import lend, lent
from vitrail.audit.null import Null, shipped
from vitrail.audit.obey import config_digest
from vitrail.audit.separability import Separability
from vitrail.audit.site import SiteAudit, audit_site
from vitrail.engine.federation import Federation
from vitrail.engine.loaded import Run
from vitrail.engine.plan import make_plan
from vitrail.engine.reference import ensure_local, images_of
from vitrail.engine.sitefolder import SiteFolder
from vitrail.errors import RunError, nearest
from vitrail.files import write_json
from vitrail.release.door import Door
from vitrail.rng import server

_ENOUGH = 12  # test images a class below which a site's training images help out

TABLES = "separability.json"
Keep = Callable[[Desk, SiteAudit], None]


def desk_of(run: Run, federation: Federation, site: str, lenders: Sequence[str] = ()) -> Desk:
    """A site's own images and models; the local model is trained on the spot if there is none.

    The shared model is the global one, or the site's personal one where there is no global one.
    `lenders` are sites that agreed to lend their local models.
    """
    rows = federation.sites[site]
    wanted = _ENOUGH * len(run.classes)
    chosen = rows.test if len(rows.test) >= wanted else np.concatenate([rows.test, rows.train])
    ensure_local(run, federation, site)
    shared = run.model(site, "personal") if run.keeps_home else run.model()
    images = federation.images
    return Desk(
        site,
        images.images[chosen],
        images.labels[chosen],
        run.model(site, "local"),
        shared,
        {name: lent(run, name) for name in lenders if name != site},
        sizes=None if images.sizes is None else images.sizes[chosen],
    )


def audit_run(
    run: Run,
    sites: Sequence[str] | None = None,
    null: Null | None = None,
    tell: Callable[[str], None] | None = None,
    keep: Keep | None = None,
    lenders: Sequence[str] = (),
) -> Audit:
    """Audit some sites of a finished run (None: all), each on its own images.

    `tell` hears what is being done; `keep` gets each site's desk with its audit, while it is
    there. Where several sites are audited, what each tells the others is in its ledger; so are
    the local models of `lenders`, the sites that agreed to lend theirs.
    """
    _check(run, (*(sites or ()), *lenders))
    federation = images_of(run)
    null = null or shipped()
    chosen = tuple(dict.fromkeys(sites or run.sites))
    told = tables(run, federation, chosen)
    for site in lenders:
        lend(run, federation, site)
    found: list[SiteAudit] = []
    for site in chosen:
        desk = desk_of(run, federation, site, lenders)
        key = server(run.config.run.seed).at("audit", site)
        one = audit_site(desk, contrasts(told, site), key, null, tell)
        if keep is not None:
            keep(desk, one)
        if len(chosen) > 1:
            _release(run, one)
        found.append(one)
    apart = agreement(run).apart() if averages_subspaces(run) else ()
    return together(found, null, config_digest(run.config), apart)


def told_tables(run: Run, federation: Federation, sites: Sequence[str]) -> dict[str, Any]:
    """What is at the server of what sites told, as JSON; each site asked tells its own, once.

    A table says how well places of an image tell a site's classes apart: figures, no image.
    """
    key = server(run.config.run.seed).at("audit")
    file = run.folder.server / TABLES
    told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    fresh = [site for site in sites if site not in told]
    if fresh:
        some = replace(federation, sites={site: federation.sites[site] for site in fresh})
        for site, table in tables_of(Extractor(*run.extractor()), some, key).items():
            door = Door(site, SiteFolder(run.path, site).ledger(), (), ())
            told[site] = table.to_json()
            each = zip(run.classes, told[site]["area"], told[site]["counts"], strict=True)
            door.tell("separability", {n: {"area": a, "count": c} for n, a, c in each})
        write_json(file, told)
    return told


def tables(run: Run, federation: Federation, sites: Sequence[str]) -> dict[str, Separability]:
    """What the sites of a run told each other, the sites asked included.

    What another site told and cannot be compared is left out, with a line in the log.
    """
    told = told_tables(run, federation, sites)
    found = {site: _own(run, site, told[site]) for site in sites}
    usual = found[sites[0]]
    for site, raw in told.items():
        if site not in found:
            try:
                found[site] = _comparable(raw, usual)
            except (KeyError, TypeError, ValueError) as err:
                run.folder.log(f"audit: without what site {site!r:.60} told: {err}")
    if len(found) < 2:
        raise RunError(
            "an audit compares a site with others, and no other site has told its figures yet",
            where=str(run.path),
            hint="Run `vitrail audit` once for all sites, or for another one first.",
        )
    return found


def _own(run: Run, site: str, raw: dict[str, Any]) -> Separability:
    try:
        return Separability.from_json(raw)
    except (KeyError, TypeError, ValueError) as err:
        raise RunError(
            f"what site {site!r} told cannot be read ({err})",
            where=str(run.folder.server / TABLES),
            hint="Delete the file and audit all sites again.",
        ) from err


def _comparable(raw: dict[str, Any], usual: Separability) -> Separability:
    found = Separability.from_json(raw)
    if not found.like(usual):
        raise ValueError("its classes or its places are not those of this model")
    return found


def _check(run: Run, sites: Sequence[str]) -> None:
    """Refuse what cannot be audited, before anything is computed."""
    where = str(run.path)
    if not run.finished:
        raise RunError(
            "this run is still going, or was stopped",
            where=where,
            hint="`vitrail resume` it; an audit compares models that are done.",
        )
    for site in sites:
        if site not in run.sites:
            raise RunError(
                f"there is no site {site!r} in this run",
                where=where,
                hint=nearest(site, run.sites),
            )
    plan, network = make_plan(run.loaded, run.classes, run.card["channels"])
    parts(network)
    if plan.method.pooled or not any(stage.travels for stage in plan.stages):
        raise RunError(
            f"in a {run.config.method.name} run no site teaches another anything",
            where=where,
            hint="Audit a federation: a run of myth-gm, myth-pm or fedgrasp, say.",
        )


def _release(run: Run, found: SiteAudit) -> None:
    """What leaves a site when the others may see its audit: figures by class, and no image."""
    door = Door(found.site, SiteFolder(run.path, found.site).ledger(), (), ())
    alarm = found.alarm
    figures: dict[str, dict[str, object]] = {
        name: {"gap": gap, "spread": alarm.error(name) if alarm.images[name] > 1 else None}
        for name, gap in alarm.by_class.items()
    }
    for finding in found.findings:
        figures.setdefault(finding.label, {}).update(finding.to_json())
    door.tell("audit", figures)
