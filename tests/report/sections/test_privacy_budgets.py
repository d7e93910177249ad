"""What formal mechanisms have spent, site by site."""

from vitrail.report.blocks import render_block
from vitrail.report.sections.privacy_budgets import list_spending, make_budget_blocks

SPEND = {
    "mechanism": "dp-sgd",
    "unit": "one image",
    "against": "the server and everybody after it",
    "delta": 1e-5,
    "target": 8.0,
    "accountant": "pld",
    "events": [[1.0, 0.1, 10]],
}


def make_line(round_, epsilon):
    spend = {**SPEND, "epsilon": epsilon}
    guarantee = f"formal: (epsilon, delta) = ({epsilon:.4g}, 1e-05) for one image"
    return {
        "kind": "release",
        "round": round_,
        "bytes": 100,
        "spends": [spend],
        "guarantee": guarantee,
    }


def test_the_budget_of_a_site_is_that_of_its_last_release():
    ledger = [("a", make_line(1, 1.5)), ("a", make_line(2, 2.5)), ("b", make_line(1, 1.25))]
    assert len(list_spending(ledger)) == 3
    figure, table = make_budget_blocks("run", ledger)
    assert {(row[0], row[2]) for row in table.rows} == {("a", 2.5), ("b", 1.25)}
    assert "against" in render_block(table)
    drawn = figure.draw(860).to_inline_svg()
    assert "a, dp-sgd, round 2: 2.5" in drawn  # an epsilon is no percentage


def test_nothing_spent_is_no_budget():
    assert make_budget_blocks("run", [("a", {"kind": "release", "guarantee": "empirical"})]) == ()
    (table,) = make_budget_blocks(
        "run", [("a", make_line(1, 0.0) | {"spends": [{**SPEND, "epsilon": None}]})]
    )
    assert table.rows[0][2] is None  # no finite epsilon is a dash, not a zero
