"""What sites tell so that known columns can explain a difference: histograms by group.

Only of classes that were not clear, and only where the data has such columns. Every site's B half
is told as before, its images now parted by group; words and edges are those of the asking site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.audit.audit_tables import (
    AuditTables,
    compute_features,
    make_audit_key,
    make_extractor,
    open_door,
    read_stored,
)
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.exchange import Pair, SiteFeatures
from vitrail.audit.detection.halves import average_groups
from vitrail.audit.detection.histogram import BINS, count_bins
from vitrail.audit.detection.strata import (
    MOST_GROUPS,
    WithinGroups,
    compare_within_groups,
    group_values,
    list_group_columns,
)
from vitrail.engine.federation import Federation
from vitrail.engine.storage.run_folder import AUDIT_TABLES_FILE
from vitrail.files import write_json
from vitrail.runs.opened_run import Run

STRATA = "strata"
Values = npt.NDArray[np.generic]
Grouping = tuple[tuple[str, ...] | None, tuple[float, ...] | None]  # words, or edges of thirds


@dataclass(frozen=True)
class _Tested:
    """The images (or patients) of a site's B half: features, classes, known columns."""

    rows: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    columns: Mapping[str, Values]


def explain_by_columns(
    run: Run, federation: Federation, tables: AuditTables, contrasts: Sequence[Contrast]
) -> dict[Pair, dict[str, WithinGroups]]:
    """For each class that is not clear, what is left of its difference within each column's groups.

    All sites of the tables must be there; what each tells is in its ledger, once.
    """
    asked = [(c.site, c.label) for c in contrasts if c.verdict != "clear"]
    columns = _list_columns(run, federation)
    sites = [site for site in tables.histograms if site in federation.sites]
    if not asked or not columns or len(sites) < len(tables.histograms):
        return {}
    stored = read_stored(run)
    told = {site: _read_told(stored, site, tables, asked, columns) for site in sites}
    if any(table is None for table in told.values()):
        told = _tell(run, federation, tables, asked, columns, sites, stored)
    key = make_audit_key(run).at("strata")
    explained: dict[Pair, dict[str, WithinGroups]] = {}
    for pair in asked:
        explained[pair] = {}
        for column in columns:
            here = _get_counts(told[pair[0]], pair, column)
            others = [_get_counts(told[site], pair, column) for site in sites if site != pair[0]]
            explained[pair][column] = compare_within_groups(
                here, np.sum(others, 0), key.at(*pair, column)
            )
    return explained


def _list_columns(run: Run, federation: Federation) -> list[str]:
    """Known columns, without those that only say which site, class or patient it is."""
    data = run.config.data
    told_otherwise = {data.site, data.label, data.patient, data.split, run.config.partition.column}
    extra = {
        name: values
        for name, values in federation.images.extra.items()
        if name not in told_otherwise and not _is_of_sites(values, federation)
    }
    return list_group_columns(extra)


def _is_of_sites(values: Values, federation: Federation) -> bool:
    """Whether a column has one value at each site: it names the site, and explains nothing."""
    held = (np.concatenate([rows.train, rows.test]) for rows in federation.sites.values())
    return all(len(np.unique(values[rows])) < 2 for rows in held)


def _tell(
    run: Run,
    federation: Federation,
    tables: AuditTables,
    asked: Sequence[Pair],
    columns: Sequence[str],
    sites: Sequence[str],
    stored: dict[str, Any],
) -> dict[str, Any]:
    """Let every site count, through its door."""
    extractor = make_extractor(run)
    held = {
        site: _gather(federation, site, compute_features(run, federation, site, extractor), columns)
        for site in sites
    }
    told = {}
    for site in sites:
        counts: dict[str, Any] = {}
        for asker, label in asked:
            for column in columns:
                rule = _choose_groups(held[asker], column, label)
                pair = (asker, label)
                counts[_name(*pair, column)] = _count(held[site], column, tables, pair, rule)
        told[site] = {"of": tables.exchange.digest, "counts": counts}
        stored[site] = {**stored[site], STRATA: told[site]}
        open_door(run, site).release_findings("audit strata", {"all classes": told[site]})
    write_json(run.folder.server / AUDIT_TABLES_FILE, stored)
    return told


def _gather(
    federation: Federation, site: str, features: SiteFeatures, columns: Sequence[str]
) -> _Tested:
    """The B half of a site; of a patient's images the first says what its columns are."""
    b, rows = features.b, federation.sites[site]
    means, labels = average_groups(features.features[b], features.labels[b], features.group[b])
    pairs = np.stack([features.labels[b], features.group[b]], 1)
    first = b[np.unique(pairs, axis=0, return_index=True)[1]]
    held = np.concatenate([rows.train, rows.test])[first]
    return _Tested(means, labels, {c: federation.images.extra[c][held] for c in columns})


def _choose_groups(tested: _Tested, column: str, label: int) -> Grouping:
    """The words of a column, or the thirds of its numbers, in one class of the site asked about."""
    values = tested.columns[column]
    own = values[tested.labels == label]
    if not np.issubdtype(values.dtype, np.number) or len(np.unique(values)) <= 3:
        return tuple(sorted({str(value) for value in values}))[:MOST_GROUPS], None
    numbers = own.astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    edges = np.quantile(numbers, [1 / 3, 2 / 3]) if len(numbers) else np.zeros(2)
    return None, (float(edges[0]), float(edges[1]))


def _count(
    tested: _Tested, column: str, tables: AuditTables, pair: Pair, rule: Grouping
) -> list[list[int]]:
    """Histograms of one class by group; the last row has those of no group."""
    names, edges = rule
    groups = len(names) if names is not None else 3
    of_class = tested.labels == pair[1]
    scalars = tables.exchange.directions[pair].project(tested.rows[of_class])
    at = group_values(tested.columns[column][of_class], names, edges)
    at = np.where(at < 0, groups, at)
    return [count_bins(scalars[at == group]).tolist() for group in range(groups + 1)]


def _read_told(
    stored: Mapping[str, Any],
    site: str,
    tables: AuditTables,
    asked: Sequence[Pair],
    columns: Sequence[str],
) -> dict[str, Any] | None:
    """What a site told before, if it is all that is asked about now."""
    entry = stored.get(site, {}).get(STRATA)
    if not isinstance(entry, dict) or entry.get("of") != tables.exchange.digest:
        return None
    wanted = {_name(name, label, column) for name, label in asked for column in columns}
    return entry if wanted <= set(entry.get("counts", {})) else None


def _get_counts(told: Any, pair: Pair, column: str) -> npt.NDArray[np.int64]:
    return np.array(told["counts"][_name(*pair, column)], np.int64).reshape(-1, BINS)


def _name(site: str, label: int, column: str) -> str:
    return f"{site}/{label}/{column}"
