"""Methods side by side: does the difference to a baseline outlast the choice of the seed?

With the same seeds on both sides the test is the paired t-test, otherwise Welch's; all p-values
of one table are corrected together after Holm (1979). Where a test has no answer, p is None and
a note says why.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

# scipy.stats would take most of a second to import; the distribution itself is here
from scipy.special import gammaln, stdtr, stdtrit

from vitrail.errors import VitrailError, suggest_name

Floats: TypeAlias = npt.NDArray[np.float64]
MetricValues: TypeAlias = Sequence[float | None] | Mapping[Hashable, float | None]
History: TypeAlias = Sequence[tuple[float, float | None]]
Histories: TypeAlias = Mapping[str, History | Mapping[Hashable, History]]
Alternative: TypeAlias = Literal["two-sided", "greater", "less"]
P = TypeVar("P", float, float | None)
Test: TypeAlias = Literal["paired", "welch"]
CONFIDENCE_LEVEL = 0.95
TOLERANCE = 1e-12  # a spread this small beside the values is rounding, not variation


@dataclass(frozen=True)
class Row:
    """One method: its figures over seeds, and how they differ from the baseline's.

    `difference` is method minus baseline with a two-sided 95 % interval `low` to `high`; over a
    paired test it is the mean over the seeds both have. `effect` is Cohen's d_z when paired and
    Hedges' g otherwise. `p_holm` is corrected over all rows of the table.
    """

    name: str
    n: int
    mean: float | None
    sd: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    test: Test | None = None
    p: float | None = None
    p_holm: float | None = None
    effect: float | None = None
    note: str = ""


def compare(
    groups: Mapping[str, MetricValues],
    baseline: str,
    paired: bool | Literal["auto"] = "auto",
    alternative: Alternative = "two-sided",
) -> list[Row]:
    """One row for each method, the baseline first; values by seed allow the paired test.

    `paired="auto"` pairs when at least two seeds, and more than half of the larger group's, are
    common. `paired=True` pairs over the common seeds, or lists by position. `greater` asks
    whether the method exceeds the baseline. Values that are None or NaN are left out and noted.
    """
    if baseline not in groups:
        raise VitrailError(
            f"there is no method called {baseline!r} to compare with",
            hint=suggest_name(baseline, groups),
        )
    if alternative not in ("two-sided", "greater", "less"):
        hint = "Valid: two-sided, greater, less"
        raise VitrailError(f"there is no alternative {alternative!r}", hint=hint)
    known = {name: _index_by_seed(figures) for name, figures in groups.items()}
    named = {name: isinstance(figures, Mapping) for name, figures in groups.items()}
    rows = [_describe(baseline, groups[baseline], known[baseline])]
    for name in groups:
        if name == baseline:
            continue
        row = _describe(name, groups[name], known[name])
        seeds = _choose_pairs(name, baseline, known, named, paired)
        if seeds is None:
            a, b = (np.array(list(known[k].values()), dtype=np.float64) for k in (name, baseline))
            rows.append(_test_welch(row, a, b, alternative))
        else:
            change = np.array([known[name][s] - known[baseline][s] for s in seeds], np.float64)
            scale = max((abs(known[k][s]) for k in (name, baseline) for s in seeds), default=0.0)
            partial = len(seeds) < max(len(known[name]), len(known[baseline]))
            note = f"paired over {len(seeds)} common seeds" if partial else ""
            rows.append(_test_paired(_add_note(row, note), change, scale, alternative))
    corrected = holm([row.p for row in rows])
    return [replace(row, p_holm=p) for row, p in zip(rows, corrected)]


def holm(p_values: Sequence[P]) -> list[P]:
    """Holm's step-down correction (1979), in the order given; None stays None and does not count
    as a test."""
    if any(p is not None and not 0 <= p <= 1 for p in p_values):
        raise VitrailError(f"p-values lie between 0 and 1: {list(p_values)}")
    tests = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    result = list(p_values)
    running = 0.0
    for rank, (p, place) in enumerate(tests):
        running = max(running, min(1.0, (len(tests) - rank) * p))
        result[place] = running
    return result


def _index_by_seed(figures: MetricValues) -> dict[Hashable, float]:
    pairs = figures.items() if isinstance(figures, Mapping) else enumerate(figures)
    return {s: float(v) for s, v in pairs if v is not None and math.isfinite(v)}


def _describe(name: str, given: MetricValues, known: Mapping[Hashable, float]) -> Row:
    values = np.array(list(known.values()), dtype=np.float64)
    n = len(values)
    row = Row(name, n, float(values.mean()) if n else None, _sd(values))
    missing = len(given) - n
    return _add_note(row, f"{missing} without a value, left out" if missing else "")


def _choose_pairs(
    name: str,
    baseline: str,
    known: Mapping[str, Mapping[Hashable, float]],
    named: Mapping[str, bool],
    paired: bool | Literal["auto"],
) -> list[Hashable] | None:
    """The seeds to pair over, or None for a test of independent groups."""
    a, b = known[name], known[baseline]
    common = [seed for seed in b if seed in a]
    if paired == "auto":
        enough = len(common) >= 2 and 2 * len(common) > max(len(a), len(b))
        return common if named[name] and named[baseline] and enough else None
    if not paired:
        return None
    if named[name] != named[baseline] or (not named[name] and len(a) != len(b)):
        raise VitrailError(
            f"{name!r} and {baseline!r} cannot be paired: their values do not match one to one",
            hint="Give the values by seed, or use paired=False.",
        )
    return common


def _test_paired(row: Row, change: Floats, scale: float, alternative: Alternative) -> Row:
    n = len(change)
    if n == 0:
        return _add_note(row, "no common seed with the baseline")
    difference = float(change.mean())
    row = replace(row, difference=difference, test="paired" if n > 1 else None)
    spread = _sd(change)
    if spread is None:
        return _add_note(row, "one seed: no test")
    if spread <= TOLERANCE * scale:
        return _test_constant(
            row, difference, scale, "every difference to the baseline is the same"
        )
    error = spread / math.sqrt(n)
    row = replace(row, effect=difference / spread)
    return _add_t_test(row, difference, error, n - 1, alternative)


def _test_welch(row: Row, a: Floats, b: Floats, alternative: Alternative) -> Row:
    if not len(a) or not len(b):
        return _add_note(row, "no values to compare")
    difference = float(a.mean() - b.mean())
    scale = float(max(np.abs(a).max(), np.abs(b).max()))
    if len(a) < 2 or len(b) < 2:
        return _add_note(replace(row, difference=difference), "one seed: no test")
    row = replace(row, difference=difference, test="welch")
    va, vb = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    if math.sqrt(va + vb) <= TOLERANCE * scale:
        return _test_constant(row, difference, scale, "neither method varies over seeds")
    df = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    row = replace(row, effect=_hedges(a, b))
    return _add_t_test(row, difference, math.sqrt(va + vb), df, alternative)


def _test_constant(row: Row, difference: float, scale: float, why: str) -> Row:
    """No variation at all: equal is certain, unequal is nothing a t-test can weigh."""
    if abs(difference) <= TOLERANCE * scale:
        return _add_note(replace(row, p=1.0, effect=0.0), "the same values as the baseline")
    return _add_note(row, f"{why}: the t-test is undefined")


def _add_t_test(
    row: Row, difference: float, error: float, df: float, alternative: Alternative
) -> Row:
    t = difference / error
    tails = {"two-sided": 2 * stdtr(df, -abs(t)), "greater": stdtr(df, -t), "less": stdtr(df, t)}
    reach = float(stdtrit(df, (1 + CONFIDENCE_LEVEL) / 2)) * error
    p = min(1.0, float(tails[alternative]))
    return replace(row, p=p, low=difference - reach, high=difference + reach)


def _hedges(a: Floats, b: Floats) -> float:
    """Cohen's d with the pooled SD, times the exact factor that removes its bias."""
    df = len(a) + len(b) - 2
    pooled = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / df
    factor = math.exp(gammaln(df / 2) - gammaln((df - 1) / 2)) / math.sqrt(df / 2)
    return float((a.mean() - b.mean()) / math.sqrt(pooled) * factor)


def _sd(values: Floats) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _add_note(row: Row, note: str) -> Row:
    return replace(row, note="; ".join(part for part in (row.note, note) if part))


HEADER = ("method", "n", "mean ± SD", "difference [95 % CI]", "p", "p (Holm)", "effect", "test")


def table_text(rows: Sequence[Row], digits: int = 3) -> str:
    """The rows as aligned plain text, with notes below."""
    cells, notes = _format_cells(rows, digits)
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADER))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in cells]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join([*lines, *notes]) + "\n"


def table_markdown(rows: Sequence[Row], digits: int = 3) -> str:
    """The rows as a Markdown table, with notes below."""
    cells, notes = _format_cells(rows, digits)
    lines = ["| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in cells]
    lines.insert(1, "|---" * len(HEADER) + "|")
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in notes)


def _format_cells(rows: Sequence[Row], digits: int) -> tuple[list[tuple[str, ...]], list[str]]:
    cells: list[tuple[str, ...]] = [HEADER]
    notes: list[str] = []
    effects = {"paired": "d_z", "welch": "g"}
    for row in rows:
        name = " ".join(row.name.split())
        if row.note:
            notes.append(f"({len(notes) + 1}) {name}: {row.note}.")
            name = f"{name} ({len(notes)})"
        spread = "" if row.sd is None else f" ± {row.sd:.{digits}f}"
        change = _format_number(row.difference, f"+.{digits}f")
        if row.low is not None and row.high is not None:
            change += f" [{row.low:+.{digits}f}, {row.high:+.{digits}f}]"
        effect = _format_number(row.effect, "+.2f")
        if row.test and row.effect is not None:
            effect = f"{effects[row.test]} {effect}"
        middle = _format_number(row.mean, f".{digits}f") + spread
        p, corrected = _format_p_value(row.p), _format_p_value(row.p_holm)
        cells.append((name, str(row.n), middle, change, p, corrected, effect, row.test or "-"))
    return cells, notes


def _format_number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _format_p_value(p: float | None) -> str:
    return "<0.001" if p is not None and p < 0.001 else _format_number(p, ".3f")
