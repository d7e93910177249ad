"""The heads table as Markdown: accuracies, and differences with intervals, pooled over images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.tables.heads_results import Answered, HeadsResults, gather_answers
from experiments.tables.markdown import to_markdown
from vitrail.metrics.method_tests import holm
from vitrail.metrics.paired_images import PairedDifference, balance_by_site, compare_paired
from vitrail.sweep.tune import TunedRow, format_search

MARGIN = 0.03
Key = tuple[str, str]  # row, variant
Table = Mapping[Key, Mapping[str, Answered]]


def describe_heads(
    results: HeadsResults, tuned: Mapping[str, TunedRow], chosen: Mapping[str, Any], partition: str
) -> str:
    """All of it: the accuracies, the comparisons with the first row, and the search."""
    table = gather_answers(results, partition)
    first = next(iter(tuned), "")
    parts = [
        f"{partition}; every image outside the validation share tested once.",
        format_accuracies(table),
        format_differences(table, first),
        "The search, on validation images:",
        format_search(tuned),
        _format_personal(chosen),
    ]
    return "\n\n".join(part for part in parts if part)


def format_accuracies(table: Table) -> str:
    """Accuracy, and class-balanced accuracy after a slash, by data."""
    names = sorted({data for by_data in table.values() for data in by_data})
    rows = []
    for (row, variant), by_data in table.items():
        cells = [row, variant]
        for data in names:
            cells.append(_format_accuracy(by_data[data]) if data in by_data else "-")
        rows.append(cells)
    return to_markdown(["row", "model", *names], rows)


def _format_accuracy(answered: Answered) -> str:
    folds = len(np.unique(answered.fold))
    balanced = balance_by_site(answered.hits, answered.labels, answered.site + 1000 * answered.fold)
    note = "" if folds == 5 else f" ({folds} folds)"
    return f"{answered.hits.mean():.3f} / {balanced:.3f}{note}"


def pool_hits(table: Table, key: Key, other: Key) -> tuple[list[Any], list[Any]]:
    """The hits of two models on the images, data by data, that both of them answered."""
    mine, theirs = [], []
    for data in sorted(set(table[key]) & set(table[other])):
        a, b = table[key][data], table[other][data]
        common = np.intersect1d(np.unique(a.fold), np.unique(b.fold))
        mine.append(a.hits[np.isin(a.fold, common)])
        theirs.append(b.hits[np.isin(b.fold, common)])
    return mine, theirs


def compare_keys(table: Table, key: Key, other: Key) -> PairedDifference | None:
    """One model against another, over all images of all data."""
    if key not in table or other not in table:
        return None
    mine, theirs = pool_hits(table, key, other)
    return compare_paired(np.concatenate(mine), np.concatenate(theirs), MARGIN) if mine else None


def format_differences(table: Table, first: str) -> str:
    """Every row against the first one, like with like, in points, with Holm's correction; where the
    first has sites' own models alone, every model against these."""
    pairs = [
        (key, (first, key[1]))
        for key in table
        if key[0] != first and (first, key[1]) in table and key[1] != "own"
    ]
    if (first, "global") not in table:  # it has no model but the sites' own: that is the measure
        pairs = [(key, (first, "own")) for key in table if key[0] not in (first, "prior only")]
    compared = [
        (key, other, found) for key, other in pairs if (found := compare_keys(table, key, other))
    ]
    corrected = holm([found.p for _, _, found in compared])
    rows = [
        [
            key[0],
            key[1],
            f"{100 * found.difference:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]",
            _format_p(p),
            "yes" if found.p_level < 0.05 else "no",
            f"{found.count:,}",
            f"{found.disagree:.2f}",
        ]
        for (key, _, found), p in zip(compared, corrected, strict=True)
    ]
    if not rows:
        return ""
    head = ["row", "model", f"points over {first} [95 %]", "p (Holm)"]
    return to_markdown([*head, f"level within {100 * MARGIN:g}", "images", "disagree on"], rows)


def _format_p(p: float | None) -> str:
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _format_personal(chosen: Mapping[str, Any]) -> str:
    rows: list[list[str]] = []
    for name, variants in chosen.items():
        for variant, found in variants.items():
            for trial in found["trials"]:
                setting = ", ".join(f"{k} = {v:g}" for k, v in trial["setting"].items())
                scores = ", ".join(f"{score:.3f}" for score in trial["scores"])
                mark = "**chosen**" if trial["setting"] == found["setting"] else ""
                rows.append([name, variant, setting, scores, mark])
    head: Sequence[str] = ("row", "personal", "setting", "validation accuracy", "")
    return to_markdown(list(head), rows) if rows else ""
