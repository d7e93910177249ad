import numpy as np
import pytest
from scipy import stats

from vitrail.errors import VitrailError
from vitrail.metrics.method_tests import compare, holm, table_markdown, table_text

BASE = [0.71, 0.74, 0.69, 0.73, 0.70]
BETTER = [0.75, 0.76, 0.74, 0.74, 0.78]


def by_seed(values, start=1):
    return {start + i: v for i, v in enumerate(values)}


def row(groups, name="new", **options):
    return next(r for r in compare(groups, "base", **options) if r.name == name)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("size", [2, 3, 10])
def test_paired_agrees_with_scipy(alternative, size):
    draw = np.random.default_rng(size)
    a, b = draw.normal(0.7, 0.1, size), draw.normal(0.65, 0.1, size)
    shuffled = dict(reversed(by_seed(a.tolist()).items()))
    found = row({"base": by_seed(b), "new": shuffled}, alternative=alternative)
    oracle = stats.ttest_rel(a, b, alternative=alternative)
    assert found.test == "paired"
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)
    assert found.effect == pytest.approx((a - b).mean() / (a - b).std(ddof=1))
    limits = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((limits.low, limits.high))
    assert (found.mean, found.sd) == pytest.approx((a.mean(), a.std(ddof=1)))


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize(("m", "n"), [(2, 2), (5, 3), (10, 10)])
def test_welch_agrees_with_scipy(alternative, m, n):
    draw = np.random.default_rng(m * n)
    a, b = draw.normal(0.7, 0.2, m), draw.normal(0.6, 0.05, n)
    found = row({"base": b.tolist(), "new": a.tolist()}, alternative=alternative)
    oracle = stats.ttest_ind(a, b, equal_var=False, alternative=alternative)
    assert found.test == "welch"
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)
    limits = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((limits.low, limits.high))


def test_hedges_g_is_unbiased():
    draw = np.random.default_rng(0)
    found = [
        row({"base": draw.normal(0, 1, 4).tolist(), "new": draw.normal(1, 1, 4).tolist()}).effect
        for _ in range(3000)
    ]
    assert np.mean(found) == pytest.approx(1.0, abs=0.06)  # without the factor 1.15


def literal_holm(ps):
    """Reject the k-th smallest while p <= level / (m - k): the smallest such level for each."""
    order = np.argsort(ps)
    return [
        min(1.0, max((len(ps) - k) * ps[order[k]] for k in range(list(order).index(i) + 1)))
        for i in range(len(ps))
    ]


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    many = (np.random.default_rng(seed).random(count).tolist() for seed, count in ((1, 9), (4, 40)))
    ties = ([0.03], [1.0, 1.0], [0.01, 0.04, 0.03], [0.02, 0.02, 0.02], [0.0, 0.5, 1e-12])
    for ps in (*many, *ties):
        assert holm(ps) == pytest.approx(literal_holm(ps))
        assert all(corrected >= p for corrected, p in zip(holm(ps), ps))
    assert holm([]) == []
    assert holm([0.02, None, 0.03]) == pytest.approx([0.04, None, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    for bad in (float("nan"), -0.1, 1.1):
        with pytest.raises(VitrailError):
            holm([bad])


def test_correction_covers_the_whole_table_and_the_baseline_comes_first():
    draw = np.random.default_rng(2)
    groups = {f"m{i}": by_seed(draw.normal(0.1 * i, 0.1, 5).tolist()) for i in range(4)}
    rows = compare(groups, "m2")
    assert [r.name for r in rows] == ["m2", "m0", "m1", "m3"]
    assert rows[0].p is None and rows[0].difference is None
    assert [r.p_holm for r in rows[1:]] == pytest.approx(literal_holm([r.p for r in rows[1:]]))


def test_auto_pairs_over_common_seeds_only_when_most_are_common():
    base = by_seed(BASE)
    crashed = {s: v for s, v in by_seed(BETTER).items() if s != 3}
    found = row({"base": base, "new": crashed})
    change = [crashed[s] - base[s] for s in crashed]
    assert found.test == "paired" and "4 common seeds" in found.note
    assert found.difference == pytest.approx(np.mean(change)) and found.n == 4
    assert found.p == pytest.approx(stats.ttest_1samp(change, 0).pvalue)
    assert row({"base": base, "new": by_seed(BETTER, 4)}).test == "welch"  # 2 of 5 in common
    assert row({"base": base, "new": by_seed(BETTER, 100)}).test == "welch"
    assert row({"base": base, "new": by_seed(BETTER)}, paired=False).test == "welch"
    assert row({"base": BASE, "new": BETTER}).test == "welch"  # nobody said which seeds
    assert row({"base": BASE, "new": by_seed(BETTER)}).test == "welch"


def test_asked_to_pair():
    lists = row({"base": BASE, "new": BETTER}, paired=True)
    assert lists.p == pytest.approx(stats.ttest_rel(BETTER, BASE).pvalue)
    for groups in ({"base": BASE, "new": BETTER[:4]}, {"base": BASE, "new": by_seed(BETTER)}):
        with pytest.raises(VitrailError, match="by seed"):
            compare(groups, "base", paired=True)
    apart = row({"base": by_seed(BASE), "new": by_seed(BETTER, 100)}, paired=True)
    assert apart.p is None and "no common seed" in apart.note


@pytest.mark.parametrize("make", [list, by_seed])
def test_one_seed_has_a_difference_but_no_test(make):
    for paired in ("auto", True):
        found = row({"base": make([0.5]), "new": make([0.75])}, paired=paired)
        assert (found.difference, found.sd, found.p, found.effect) == (0.25, None, None, None)
        assert "one seed" in found.note


@pytest.mark.parametrize("paired", [True, False])
def test_no_variation(paired):
    base = [0.7, 0.7, 0.7] if not paired else [0.7, 0.8, 0.9]
    same = row({"base": base, "new": list(base)}, paired=paired)
    assert same.p == 1.0 and same.effect == 0.0 and same.difference == 0.0
    shifted = row({"base": base, "new": [v + 0.1 for v in base]}, paired=paired)
    assert shifted.difference == pytest.approx(0.1)
    assert shifted.p is None and shifted.effect is None and "undefined" in shifted.note


def test_one_side_without_variation_is_still_welch():
    found = row({"base": [0.5, 0.5, 0.5], "new": [0.6, 0.7, 0.8]})
    assert found.p == pytest.approx(stats.ttest_1samp([0.6, 0.7, 0.8], 0.5).pvalue)


def test_missing_values_are_left_out_and_said():
    found = row({"base": by_seed(BASE), "new": by_seed([*BETTER[:4], float("nan")])})
    assert found.n == 4 and "1 without a value" in found.note and found.test == "paired"
    empty = row({"base": BASE, "new": [None, float("inf")]})
    assert (empty.n, empty.mean, empty.p) == (0, None, None) and "no values" in empty.note
    nothing = row({"base": [], "new": []})
    assert nothing.p is None


def test_unknown_names_are_refused():
    with pytest.raises(VitrailError, match="fedavg"):
        compare({"fedavg": BASE}, "fedavgg")
    with pytest.raises(VitrailError, match="greater"):
        compare({"base": BASE}, "base", alternative="bigger")


def test_tables_show_every_row_and_every_note():
    groups = {"base": by_seed(BASE), "a|b\nc": by_seed(BETTER), "one": {1: 0.5}}
    rows = compare(groups, "base")
    text = table_text(rows)
    assert "0.714 ± 0.021" in text and "+0.040" in text and "(1) one: one seed" in text
    lines = text.splitlines()
    assert len(lines) == 2 + 3 + 1 and lines[1].startswith("---")
    marked = [line for line in table_markdown(rows).splitlines() if line.startswith("|")]
    assert len(marked) == 5 and "a\\|b c" in marked[3]
    assert {line.replace("\\|", "").count("|") for line in marked} == {9}
    tiny = compare(
        {"base": by_seed([0.1, 0.2, 0.3]), "new": by_seed([10.1, 10.2001, 10.3])}, "base"
    )
    assert "<0.001" in table_text(tiny)
    assert table_text([]).startswith("method")
