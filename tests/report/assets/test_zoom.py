"""Zooming into charts in a real browser: buttons, keys, the mouse, and all of it again."""

import pytest

from vitrail.report.blocks import Figure, Section
from vitrail.report.charts.chart_lines import Series, draw_lines
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.document_page import render_document
from vitrail.report.html import format_html

pytestmark = pytest.mark.very_slow
DESK, PHONE = (1280, 900), (360, 780)
ROUNDS, SITES, CLASSES = 40, 24, 30
PRESS = "document.querySelectorAll('#{} .zoomer button')[{}].click()"
TICKS = (
    "return [...document.querySelectorAll('#curves svg.desk text')].filter(t => "
    "(t.dataset.zoom === '{0}' || t.classList.contains('fresh')) && t.getClientRects().length)"
    ".filter(t => t.textContent.endsWith('%') === ('{0}' === 'y-tick')).map(t => t.textContent)"
)
WORDS = (
    "return [...document.querySelectorAll('#cells svg.desk text')]"
    ".filter(t => t.getClientRects().length && t.style.display !== 'none' && "
    "t.dataset.zoom === '{}').map(t => t.textContent)"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A page of curves that end close together, and of a matrix with no room for its numbers."""
    series = [
        Series(f"site {s}", tuple((r, 0.9 - 0.8 / (r + s + 1)) for r in range(1, ROUNDS + 1)))
        for s in range(4)
    ]
    names = [f"a long name of site {s}" for s in range(SITES)]
    classes = [f"class {c}" for c in range(CLASSES)]
    cells = [
        [Cell((s * c % 7) / 7, str(100 * s + c)) for c in range(CLASSES)] for s in range(SITES)
    ]

    def curves(width):
        return draw_lines(series, "Curves", "accuracy", width)

    def matrix(width):
        return draw_matrix(names, classes, cells, "Cells", width)

    lead = format_html("x")
    sections = (
        Section("curves", "Curves", lead, (Figure("curves", format_html("Curves."), curves),)),
        Section("cells", "Cells", lead, (Figure("cells", format_html("Cells."), matrix),)),
    )
    path = tmp_path_factory.mktemp("zoom") / "page.html"
    path.write_text(render_document("Zoom", "x", sections, ["run"], False), encoding="utf-8")
    return path


@pytest.fixture
def visit(browser, screen, file):
    """A function: open the page on a screen of some size, by day or night."""

    def go(size=DESK, dark=False):
        screen(size, dark)
        browser.get(file.as_uri())
        return browser

    return go


def drawn(browser, name):
    markup = browser.execute_script(f"return document.querySelector('#{name} .drawn').innerHTML")
    return markup.replace(' style=""', "")


def test_zooming_in_makes_finer_ticks_and_showing_all_brings_everything_back(visit, keep):
    browser = visit()
    whole, rounds, shares = (
        drawn(browser, "curves"),
        *(browser.execute_script(TICKS.format(kind)) for kind in ("x-tick", "y-tick")),
    )
    for _ in range(2):
        browser.execute_script(PRESS.format("curves", 0))
    fewer = [int(t) for t in browser.execute_script(TICKS.format("x-tick"))]
    assert len(fewer) > 2 and min(fewer) >= 15 and max(fewer) <= 26  # a quarter, in the middle
    finer = [float(t[:-2]) for t in browser.execute_script(TICKS.format("y-tick"))]
    assert len(finer) > 2 and min(finer) > 84 and max(finer) < 90  # the height the lines need
    apart = (
        "const mid = (e, s) => { const r = e.getBoundingClientRect();"
        " return s === 'x' ? r.x + r.width / 2 : r.y + r.height / 2; };"
        "const fresh = [...document.querySelectorAll('#curves svg.desk .fresh')];"
        "return fresh.filter(e => e.tagName === 'text').map((t, i) => {"
        " const l = fresh.filter(e => e.tagName === 'path')[i];"
        " return Math.abs(t.textContent.endsWith('%') ? mid(t, 'y') - mid(l, 'y')"
        " : mid(t, 'x') - mid(l, 'x')); })"
    )
    gaps = browser.execute_script(apart)
    assert len(gaps) == len(fewer) + len(finer) and max(gaps) < 2  # each number at its line
    keep("zoom-desktop")
    browser.execute_script(PRESS.format("curves", 2))
    assert browser.execute_script(TICKS.format("x-tick")) == rounds
    assert browser.execute_script(TICKS.format("y-tick")) == shares
    assert drawn(browser, "curves") == whole
    assert browser.get_log("browser") == []


def test_a_matrix_shows_the_names_and_numbers_that_had_no_room(visit, keep):
    browser = visit()
    names = browser.execute_script(WORDS.format("column"))
    assert "1215" not in browser.execute_script(WORDS.format("point"))
    browser.execute_script(PRESS.format("cells", 0))
    browser.execute_script(PRESS.format("cells", 0))
    numbers = browser.execute_script(WORDS.format("point"))
    assert "1215" in numbers  # row 12, column 15: the middle
    closer = browser.execute_script(WORDS.format("column"))
    assert "class 15" in closer and "class 0" not in closer and "class 0" in names
    rows = browser.execute_script(WORDS.format("row"))
    assert 5 <= len(rows) <= 7  # a quarter of 24, all of them named
    keep("zoom-matrix")


def test_the_keyboard_zooms_moves_and_never_loses_its_place(visit):
    from selenium.webdriver.common.keys import Keys

    browser = visit()
    press = browser.find_element("css selector", "#curves .zoomer button").send_keys
    press("+", "+")
    before = [int(t) for t in browser.execute_script(TICKS.format("x-tick"))]
    press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    after = [int(t) for t in browser.execute_script(TICKS.format("x-tick"))]
    assert min(after) > min(before)
    press(*[Keys.ARROW_RIGHT] * 20)  # the end of the plot is the end
    last = [int(t) for t in browser.execute_script(TICKS.format("x-tick"))]
    assert max(last) == ROUNDS
    announced = browser.execute_script(
        "return document.querySelector('#curves output').textContent"
    )
    assert announced.startswith("4\N{MULTIPLICATION SIGN}")
    press("0")
    inside = "return document.querySelector('#curves .zoomer').contains(document.activeElement)"
    assert browser.execute_script(inside)
    assert not browser.find_elements("css selector", "#curves .fresh")


def test_a_rectangle_drawn_with_the_mouse_is_what_is_seen(visit):
    from selenium.webdriver.common.action_chains import ActionChains

    browser = visit()
    svg = browser.find_element("css selector", "#curves svg.desk")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", svg)
    box = browser.execute_script(
        "const s = arguments[0], p = JSON.parse(s.dataset.plot).box, r = s.getBoundingClientRect();"
        "const k = r.width / s.viewBox.baseVal.width; return p.map(v => v * k)",
        svg,
    )
    middle = svg.size["width"] / 2, svg.size["height"] / 2
    at = [
        (box[0] + a * (box[2] - box[0]) - middle[0], box[1] + b * (box[3] - box[1]) - middle[1])
        for a, b in ((0.75, 0.02), (1.0, 0.3))
    ]
    drag = ActionChains(browser).move_to_element_with_offset(svg, *map(round, at[0]))
    drag.click_and_hold().move_to_element_with_offset(svg, *map(round, at[1])).release().perform()
    ticks = [int(t) for t in browser.execute_script(TICKS.format("x-tick"))]
    assert min(ticks) >= 30 and max(ticks) >= 38 and len(ticks) > 2
    assert not browser.find_elements("css selector", ".picked")


def test_what_is_zoomed_fits_a_phone_and_keeps_nobody_out(visit, keep):
    from axe_selenium_python import Axe

    browser = visit(PHONE, dark=True)
    for name in ("curves", "cells"):
        browser.execute_script(PRESS.format(name, 0))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]
    keep("zoom-phone")
    axe = Axe(browser)
    axe.inject()
    serious = [v["id"] for v in axe.run()["violations"] if v["impact"] in ("serious", "critical")]
    assert not serious
