"""The report in a real browser with the network off."""

import pytest

SECTIONS = [
    "summary",
    "training",
    "parts",
    "why",
    "fidelity",
    "audit",
    "privacy",
    "compare",
    "reproduce",
]
PHONE = (360, 780)
DESK = (1280, 900)

pytestmark = pytest.mark.very_slow


@pytest.fixture(scope="module")
def files(audited, birds, secret, report, tmp_path_factory):
    """Reports on disk: the birds with audit and comparison, and a hospital with hostile names."""
    folder = tmp_path_factory.mktemp("pages")
    reports = {
        "birds": report(audited, birds / "fedavg"),
        "hostile": report(secret, site="../../x", with_images=True),
    }
    for name, report_ in reports.items():
        (folder / f"{name}.html").write_text(report_.html, encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, screen, files):
    """A function: open a report on a screen of some size, by day or night."""

    def go(name="birds", size=DESK, dark=False, medium=""):
        screen(size, dark, medium)
        browser.get((files / f"{name}.html").as_uri())
        browser.execute_script("localStorage.clear(); location.reload()")
        browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 50))")
        return browser

    return go


def shown(browser, group):
    """The keys of the views of a group that can be seen."""
    script = (
        "return [...document.querySelectorAll(`[data-group='${arguments[0]}']`)]"
        ".filter(v => v.getClientRects().length).map(v => v.dataset.key)"
    )
    return set(browser.execute_script(script, group))


def test_it_opens_offline_with_every_section_and_no_complaint(visit, keep):
    browser = visit()
    assert [s.get_attribute("id") for s in browser.find_elements("css selector", "section")] == (
        SECTIONS
    )
    assert browser.get_log("browser") == []
    loaded = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert [x for x in browser.execute_script(loaded) if not x.startswith("data:")] == []
    keep("report-desktop")


def test_one_run_one_class_and_one_image_is_chosen(visit):
    browser = visit()
    for select in browser.find_elements("css selector", "select[data-choose]"):
        group = select.get_attribute("data-choose")
        values = [o.get_attribute("value") for o in select.find_elements("tag name", "option")]
        assert len(values) > 1
        if not select.is_displayed():  # it belongs to the other run
            continue
        assert shown(browser, group) == {"0"}
        change = (
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))"
        )
        browser.execute_script(change, select, values[1])
        assert shown(browser, group) == {values[1]}
        browser.execute_script(change, select, "0")


def test_a_site_is_picked_out_of_the_curves(visit):
    browser = visit()
    select = browser.find_element("css selector", "#training select[data-pick]")
    browser.execute_script(
        "arguments[0].value = 'site-00'; arguments[0].dispatchEvent(new Event('change'))", select
    )
    script = (
        "const f = document.querySelector('#training select[data-pick]').closest('figure');"
        "return [...f.querySelectorAll('[data-series]')]"
        ".map(s => [s.dataset.series, s.classList.contains('dim')])"
    )
    dimmed = browser.execute_script(script)
    assert dimmed and all(dim == (name != "site-00") for name, dim in dimmed)


def test_tables_sort_both_ways_by_value(visit):
    browser = visit()
    column = (
        "const t = [...document.querySelectorAll('#training table')].find(t => "
        "t.caption.textContent.startsWith('Every site'));"
        "return [...t.tBodies[0].rows].map(r => Number(r.cells[1].dataset.sort))"
    )
    press = (
        "const t = [...document.querySelectorAll('#training table')].find(t => "
        "t.caption.textContent.startsWith('Every site'));"
        "const h = t.tHead.rows[0].cells[1]; h.querySelector('button').click();"
        "return h.getAttribute('aria-sort')"
    )
    assert browser.execute_script(press) == "ascending"
    up = browser.execute_script(column)
    assert up == sorted(up) and len(set(up)) > 1
    assert browser.execute_script(press) == "descending"
    assert browser.execute_script(column) == sorted(up, reverse=True)


def test_night_is_the_systems_choice_until_a_person_makes_one(visit, keep):
    paper = "return getComputedStyle(document.body).backgroundColor"
    day = visit().execute_script(paper)
    browser = visit(dark=True)
    night = browser.execute_script(paper)
    assert day != night
    keep("report-dark")
    button = browser.find_element("css selector", ".theme")
    button.click()  # auto, then light
    assert browser.execute_script(paper) == day
    button.click()
    assert browser.execute_script(paper) == night
    browser.refresh()
    assert browser.execute_script(paper) == night and "dark" in browser.page_source[:600]


def test_no_word_of_a_table_is_cut_on_a_usual_screen(visit):
    browser = visit(size=(1200, 900))
    cut = browser.execute_script(
        "return [...document.querySelectorAll('.wide')].filter(r => r.getClientRects().length"
        " && r.scrollWidth > r.clientWidth + 1).map(r => r.getAttribute('aria-label'))"
    )
    assert cut == []


@pytest.mark.parametrize("name", ["birds", "hostile"])
def test_a_phone_never_scrolls_sideways(visit, keep, name):
    browser = visit(name, PHONE)
    for run in browser.find_elements("css selector", "details"):
        browser.execute_script("arguments[0].open = true", run)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]
    keep(f"{name}-phone")


@pytest.mark.parametrize(
    ("name", "size", "dark"),
    [
        ("birds", DESK, False),
        ("birds", DESK, True),
        ("birds", PHONE, False),
        ("hostile", DESK, False),
    ],
)
def test_nothing_serious_keeps_anybody_out(visit, name, size, dark):
    from axe_selenium_python import Axe

    axe = Axe(visit(name, size, dark))
    axe.inject()
    violations = [
        (v["id"], v["impact"], v["nodes"][0]["html"][:160])
        for v in axe.run()["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert not violations


def test_a_figure_opens_large_and_closes_by_key(visit):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser = visit()
    button = browser.find_element("css selector", "#training .enlarge")
    browser.execute_script("arguments[0].click()", button)
    dialog = browser.find_element("css selector", "dialog")
    assert dialog.is_displayed() and dialog.find_elements("css selector", "svg.chart")
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    assert not dialog.is_displayed()


def test_a_point_says_what_it_is(visit):
    browser = visit()
    script = (
        "const p = document.querySelector('#training svg.desk circle[data-tip]');"
        "p.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 9, clientY: 9}));"
        "const t = document.getElementById('tip'); return [t.hidden, t.textContent, p.dataset.tip]"
    )
    hidden, shown, meant = browser.execute_script(script)
    assert not hidden and shown == meant and "round" in shown


def test_paper_shows_every_view(visit):
    browser = visit(medium="print")
    assert shown(browser, "run") == {"0", "1"}
    assert not browser.find_element("css selector", "nav").is_displayed()


def test_hostile_names_run_nothing(visit):
    browser = visit("hostile")
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.querySelectorAll('section img').length") == 0


def test_the_keyboard_reaches_the_content_first(visit):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser = visit()
    ActionChains(browser).send_keys(Keys.TAB).perform()
    assert browser.switch_to.active_element.get_attribute("class") == "skip"
