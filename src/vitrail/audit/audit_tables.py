"""What sites told for an audit: released through the door, kept at the server, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitrail.audit.detection.class_summary import ClassSummary
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.exchange import (
    Exchange,
    Pair,
    SiteFeatures,
    compute_site_features,
    parse_histograms,
    write_histograms,
)
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.detection.features import FeatureExtractor
from vitrail.audit.detection.halves import name_subjects
from vitrail.audit.detection.histogram import Counts
from vitrail.engine.federation import Federation
from vitrail.engine.storage.run_folder import AUDIT_TABLES_FILE
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.files import write_json
from vitrail.release.door import Door
from vitrail.rng import Key, derive_server_key
from vitrail.runs.opened_run import Run

SUMMARY, HISTOGRAMS = "summary", "histograms"
_BAD = (KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class AuditTables:
    """What can be used of what sites told: summaries, and histograms that belong to them."""

    exchange: Exchange
    histograms: Mapping[str, Mapping[Pair, Counts]]

    @property
    def units(self) -> tuple[Unit, ...]:
        """What the features are of."""
        return self.exchange.units


def read_stored(run: Run) -> dict[str, Any]:
    """The file at the server, by site; nothing where there is none. What is no finite number is
    none at all."""
    file = run.folder.server / AUDIT_TABLES_FILE
    text = file.read_text(encoding="utf-8") if file.exists() else "{}"
    stored: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
    return stored


def make_extractor(run: Run) -> FeatureExtractor:
    """The extractor that every site of a run computes alike."""
    return FeatureExtractor(*run.extractor(), make_audit_key(run).at("features"))


def tell_summaries(run: Run, federation: Federation, sites: Sequence[str]) -> dict[str, Any]:
    """Each site asked tells of its A half, once; what is at the server comes back, as JSON."""
    stored = read_stored(run)
    fresh = [site for site in sites if not _has_summary(stored.get(site))]
    if fresh:
        extractor = make_extractor(run)
        for site in fresh:
            features = compute_features(run, federation, site, extractor)
            summary = features.summarize(extractor.get_units(federation.images.images))
            entry = summary.to_json()
            stored[site] = {SUMMARY: entry}
            open_door(run, site).release_findings("audit summary", {"all classes": entry})
        write_json(run.folder.server / AUDIT_TABLES_FILE, stored)
    return stored


def tell_histograms(run: Run, federation: Federation, sites: Sequence[str]) -> AuditTables:
    """Each site asked tells of its B half along everybody's directions, where it has not yet."""
    stored, extractor = read_stored(run), make_extractor(run)
    exchange = read_exchange(run, stored, extractor, sites)
    changed = False
    for site in sites:
        told = stored[site].get(HISTOGRAMS)
        if exchange.directions and (
            not isinstance(told, dict) or told.get("of") != exchange.digest
        ):
            features = compute_features(run, federation, site, extractor)
            entry = write_histograms(exchange, features.count(exchange.directions))
            stored[site] = {**stored[site], HISTOGRAMS: entry}
            open_door(run, site).release_findings("audit histograms", {"all classes": entry})
            changed = True
    if changed:
        write_json(run.folder.server / AUDIT_TABLES_FILE, stored)
    return AuditTables(exchange, _read_histograms(run, stored, exchange))


def read_tables(run: Run) -> AuditTables | None:
    """What a coordinator has; None where nobody told a summary."""
    stored = read_stored(run)
    if not any(_has_summary(entry) for entry in stored.values()):
        return None
    exchange = read_exchange(run, stored, make_extractor(run), ())
    return AuditTables(exchange, _read_histograms(run, stored, exchange))


def read_exchange(
    run: Run, stored: Mapping[str, Any], extractor: FeatureExtractor, sites: Sequence[str]
) -> Exchange:
    """The summaries that compare. One of `sites` that cannot be read is an error; another one is
    left out, with a line in the log."""
    side, channels = int(run.card["image_size"]), int(run.card["channels"])
    units = extractor.get_units(np.zeros((1, side, side, channels), np.uint8))
    width = 1 + max(int(unit.columns.max()) for unit in units)
    joint = [len(unit.columns) for unit in units if unit.joint]
    summaries = {}
    for site, entry in stored.items():
        try:
            summary = ClassSummary.from_json(entry[SUMMARY])
            if summary.means.shape != (len(run.classes), width):
                raise ValueError("its classes or its features are not those of this model")
            if [len(m) for m in summary.correlations] != joint:
                raise ValueError("its correlations are not those of these features")
            summaries[site] = summary
        except _BAD as err:
            if site in sites:
                raise RunError(
                    f"what site {site!r} told cannot be read ({err})",
                    where=str(run.folder.server / AUDIT_TABLES_FILE),
                    hint="Delete the file and audit all sites again.",
                ) from err
            run.folder.log(f"audit: without what site {site!r:.60} told: {err}")
    return Exchange(summaries, units)


def compare_tables(run: Run, tables: AuditTables) -> list[Contrast]:
    """Every class of every site whose histograms are there, worst first."""
    return tables.exchange.compare(tables.histograms, make_audit_key(run).at("permutations"))


def _read_histograms(
    run: Run, stored: Mapping[str, Any], exchange: Exchange
) -> dict[str, dict[Pair, Counts]]:
    histograms = {}
    for site, summary in exchange.summaries.items():
        if HISTOGRAMS in stored[site]:
            try:
                histograms[site] = parse_histograms(stored[site][HISTOGRAMS], exchange, summary)
            except _BAD as err:
                run.folder.log(f"audit: without the histograms of site {site!r:.60}: {err}")
    return histograms


def compute_features(
    run: Run, federation: Federation, site: str, extractor: FeatureExtractor
) -> SiteFeatures:
    """The features of a site's images, and its halves."""
    images, rows = federation.images, federation.sites[site]
    held = np.concatenate([rows.train, rows.test])
    patients = name_subjects(images, held)
    key = make_audit_key(run).at(site)
    return compute_site_features(
        extractor, images.images[held], images.labels[held], patients, len(run.classes), key
    )


def _has_summary(entry: Any) -> bool:
    """Whether a site told in today's form; tables of before say nothing of halves."""
    return isinstance(entry, dict) and SUMMARY in entry


def open_door(run: Run, site: str) -> Door:
    """The door of a site, for findings of an audit."""
    return Door(site, SiteFolder(run.path, site).ledger(), (), ())


def make_audit_key(run: Run) -> Key:
    """The key of everything that an audit of a run draws."""
    return derive_server_key(run.config.run.seed).at("audit")
