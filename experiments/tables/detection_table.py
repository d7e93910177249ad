"""The tables of what the audit finds: by family, by area and share, by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.tables.markdown import to_markdown
from vitrail.metrics.binomial import exact_interval
from vitrail.metrics.ranking import auc

Row = dict[str, Any]
_HEAD = ["judged", "AUC", "origin first", "`biased`", "another pair `biased` too"]


def print_tables(rows: Sequence[Row], part: str) -> None:
    """AUC, first, `biased` by family; the curve; false alarms of the unbiased ones."""
    marked = [r for r in rows if r["family"] != "none"]
    if part == "curve":
        for name in dict.fromkeys(r["family"] for r in marked):
            print(_make_curve([r for r in marked if r["family"] == name], name), "\n")
        return
    families = list(dict.fromkeys(r["family"] for r in marked))
    lines = [[f, *_summarize([r for r in marked if r["family"] == f])] for f in families]
    print(to_markdown(["family", *_HEAD], [*lines, ["all", *_summarize(marked)]]), "\n")
    kinds = list(dict.fromkeys((r["family"], r["kind"]) for r in marked))
    lines = [
        [f"{kind} ({family})", *_summarize([r for r in marked if _get_kind(r) == (family, kind)])]
        for family, kind in sorted(kinds)
    ]
    print(to_markdown(["kind", *_HEAD], lines), "\n")
    quiet = [r for r in rows if r["family"] == "none"]
    for word, name in (("biased", "alarm"), ("biased or differ", "differs")):
        print(f"{_format_share([r[name] for r in quiet])} unbiased federations {word}")


def _get_kind(row: Row) -> tuple[str, str]:
    return row["family"], row["kind"]


def _make_curve(rows: Sequence[Row], name: str) -> str:
    areas, shares = (sorted({r[n] for r in rows}) for n in ("area", "share"))
    lines = []
    for area in areas:
        cells = [[r for r in rows if (r["area"], r["share"]) == (area, share)] for share in shares]
        lines.append([f"{area:.1%}", *(_summarize_cell(cell) for cell in cells)])
    return to_markdown([f"{name}: area", *(f"share {share:g}" for share in shares)], lines)


def _summarize_cell(rows: Sequence[Row]) -> str:
    judged = [r for r in rows if r["judged"]]
    first, named = (sum(map(test, judged)) for test in (_is_first, _is_named))
    return f"{named} `biased`, {first} first of {len(judged)}"


_is_first: Callable[[Row], bool] = lambda row: bool(row["first"])  # noqa: E731
_is_named: Callable[[Row], bool] = lambda row: row["verdict"] == "biased"  # noqa: E731


def _summarize(rows: Sequence[Row]) -> list[str]:
    judged = [r for r in rows if r["judged"]]
    good = [s for r in judged for s in r["others"]]
    bad = [r["score"] for r in judged]
    return [
        f"{len(judged)} of {len(rows)}",
        f"{auc(bad, good):.3f}" if bad and good else "-",
        _format_share([_is_first(r) for r in judged]),
        _format_share([_is_named(r) for r in judged]),
        str(sum(r["alarm"] for r in judged)),
    ]


def _format_share(flags: Sequence[bool]) -> str:
    hits, count = sum(flags), len(flags)
    if not count:
        return "-"
    low, high = exact_interval(hits, count)
    return f"{hits} of {count} ({100 * low:.0f} to {100 * high:.0f} %)"
