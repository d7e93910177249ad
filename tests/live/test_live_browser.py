"""The live pages in a real browser: paint, argue, decide, watch, by keyboard; nothing foreign."""

import io
import json
import threading
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import vitrail
from vitrail.runs.personalize_head import personalize

from .conftest import SHAPE

pytestmark = pytest.mark.very_slow
RUN = "/run/runs.myth"


@pytest.fixture(scope="module")
def page(chromium, served):
    """The browser, let in."""
    calm = [{"name": "prefers-reduced-motion", "value": "reduce"}]  # scrolling takes no time
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": calm})
    size = {"width": 1280, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get(served.access.link)
    chromium.get_log("browser")
    return chromium


def wait(page, condition):
    return WebDriverWait(page, 30).until(lambda _: condition())


def read_sum(page):
    """The parts and the logit of the first class, as the page prints them."""
    block = page.find_element("css selector", ".why-block")
    values = [e.text for e in block.find_elements("css selector", "[data-value]")]
    total = block.find_element("css selector", "[data-logit]").text
    return [float(v.replace("\N{MINUS SIGN}", "-")) for v in values], float(
        total.replace("\N{MINUS SIGN}", "-")
    )


def check_sum(page):
    parts, total = read_sum(page)
    assert abs(sum(parts) - total) < 1e-6
    return tuple(parts)


def open_ask(page, served, query=""):
    page.get(f"{served.base}{RUN}/ask{query}")
    wait(page, lambda: page.find_elements("css selector", ".why-block"))
    wait(page, lambda: not page.find_elements("css selector", "[data-again]"))
    return page


def count_asked(page):
    return int(page.execute_script("return document.documentElement.dataset.asked ?? 0"))


def after_change(page, act):
    before = count_asked(page)
    act()
    wait(page, lambda: count_asked(page) > before)


def check_quiet(page, served):
    """No complaint of the browser, and nothing asked for elsewhere."""
    assert [e for e in page.get_log("browser") if e["level"] == "SEVERE"] == []
    script = "return performance.getEntriesByType('resource').map(e => e.name)"
    for name in page.execute_script(script):
        assert name.startswith((served.base, "data:", "blob:")), name


def test_an_image_is_dropped_painted_argued_with_and_still_adds_up(page, served, tmp_path):
    open_ask(page, served)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    field = page.find_element("id", "file")
    after_change(page, lambda: field.send_keys(str(tmp_path / "a.png")))
    assert "image=up-" in page.current_url
    plain = check_sum(page)
    stage = page.find_element("id", "stage")
    drag = ActionChains(page).move_to_element_with_offset(stage, -60, -40).click_and_hold()
    after_change(page, drag.move_by_offset(90, 60).release().perform)
    painted = check_sum(page)
    assert painted != plain and "cover=" in page.current_url
    assert page.find_elements("css selector", "#overlay .painted")
    button = page.find_element("css selector", "[data-off]")
    after_change(page, button.click)
    assert check_sum(page) != painted and "without=" in page.current_url
    address = page.current_url
    said = page.find_element("id", "answer").text
    open_ask(page, served, "?" + address.split("?")[1])
    assert page.find_element("id", "answer").text == said  # a state is an address
    model = Select(page.find_element("id", "model"))
    after_change(page, lambda: model.select_by_value("personal"))
    check_sum(page)
    after_change(page, page.find_element("id", "reset").click)
    check_quiet(page, served)


def test_every_argument_changes_the_numbers_and_they_still_add_up(
    page, serve_runs, tmp_path, tiny_config
):
    run = vitrail.run(tiny_config(**SHAPE), tmp_path / "runs" / "myth")
    personalize(run, run.sites[0], epochs=5, lr=0.01)  # else personal and global are the same
    served = serve_runs(tmp_path / "runs")
    page.get(served.access.link)
    draw = np.random.default_rng(1)
    for name in ("first", "second", "third"):
        pixels = draw.integers(0, 256, (48, 48, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    open_ask(page, served)
    seen = []

    def argue(act, *, changes=True):
        """Do something and wait; what is printed must be new, and add up."""
        after_change(page, act)
        wait(page, lambda: page.find_element("id", "answer").get_attribute("aria-busy") == "false")
        wait(page, lambda: not page.find_elements("css selector", "[data-again]"))
        parts = check_sum(page)
        assert (parts not in seen) is changes, page.current_url
        seen.append(parts)

    def choose(field, file):
        page.find_element("id", field).send_keys(str(tmp_path / f"{file}.png"))

    def set_pull(value):
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        page.execute_script(script, page.find_element("id", "pull"), value)

    how, model = (Select(page.find_element("id", name)) for name in ("how", "model"))
    argue(lambda: choose("file", "first"))
    argue(page.find_element("id", "add").click)  # filled from around
    argue(lambda: how.select_by_value("cover"))
    argue(lambda: how.select_by_value("paste"), changes=False)  # from nothing yet: as it was
    argue(lambda: choose("paste", "second"))
    assert "how=paste" in page.current_url and "paste=up-" in page.current_url
    off = page.find_element("css selector", "[data-off]")
    key = off.get_attribute("data-off")
    argue(off.click)
    assert f"without={key}" in page.current_url
    argue(page.find_element("css selector", f"[data-on='{key}']").click, changes=False)
    argue(lambda: set_pull("0"))
    argue(lambda: set_pull("2"))
    kinds = [option.get_attribute("value") for option in model.options]
    assert set(kinds) == {"global", "personal", "local"}
    for kind in kinds[1:]:
        argue(lambda kind=kind: model.select_by_value(kind))
    argue(lambda: choose("other", "third"), changes=False)  # beside the first, which stays
    both = page.find_elements("css selector", "#answer .chances")
    shares = [[float(e.text.rstrip(" %")) for e in one.find_elements("class name", "share")]
              for one in both]  # fmt: skip
    assert len(shares) == 2 and shares[0] != shares[1]
    for chances in shares:
        assert abs(sum(chances) - 100) < 0.3  # three classes, each rounded to a tenth
    check_downloads(page, served)
    check_quiet(page, served)


def check_downloads(page, served):
    """All four files open, and the drawing prints the numbers of the page."""
    links = [e.get_attribute("href") for e in page.find_elements("css selector", ".downloads a")]
    assert [link.split("?")[0].rpartition(".")[2] for link in links] == [
        "json",
        "csv",
        "png",
        "svg",
    ]
    parts, total = read_sum(page)
    answers = [httpx.get(link, headers=served.headers, timeout=60) for link in links]
    assert [a.status_code for a in answers] == [200] * 4
    drawing = ElementTree.fromstring(answers[3].text)
    texts = [e.text for e in drawing.iter("{http://www.w3.org/2000/svg}text")]
    for value in (*parts, total):
        assert f"{value:.3f}".replace("-", "\N{MINUS SIGN}") in texts


def test_all_of_it_by_keyboard(page, served):
    open_ask(page, served)
    plain = check_sum(page)
    page.execute_script("document.activeElement.blur(); document.body.focus()")
    for _ in range(60):
        ActionChains(page).send_keys(Keys.TAB).perform()
        if page.switch_to.active_element.get_attribute("id") == "add":
            break
    after_change(page, lambda: ActionChains(page).send_keys(Keys.ENTER).perform())
    covered = check_sum(page)
    assert covered != plain
    field = page.find_element("css selector", "#regions input")
    field.send_keys(Keys.ARROW_UP * 3)
    after_change(page, lambda: field.send_keys(Keys.TAB))
    check_sum(page)
    off = page.find_element("css selector", "[data-off]")
    off.send_keys("")
    after_change(page, lambda: off.send_keys(Keys.SPACE))
    assert "without=" in page.current_url
    check_quiet(page, served)


def test_a_region_is_redrawn_and_a_decision_is_kept(page, served, live_runs):
    page.get(f"{served.base}{RUN}/audit")
    form = page.find_element("css selector", "form.decide")
    for name, value in (("left", 1), ("top", 2), ("right", 9), ("bottom", 10)):
        field = form.find_element("name", name)
        field.clear()
        field.send_keys(str(value))
    Select(form.find_element("name", "verdict")).select_by_value("biased")
    form.find_element("name", "note").send_keys("a <b>mark</b>")
    form.find_element("name", "by").send_keys("the radiologist")
    form.find_element("css selector", "button").click()
    wait(page, lambda: "the radiologist" in page.page_source)
    decided = json.loads((live_runs / "myth" / "audit-decided.json").read_text())
    entries = [e for site in decided["sites"] for e in site["classes"] if "decided" in e]
    assert entries[0]["box"] == [1, 2, 9, 10] and entries[0]["verdict"] == "biased"
    assert entries[0]["decided"]["note"] == "a <b>mark</b>" and entries[0]["decided"]["at"]
    assert not page.find_elements("css selector", "main .note b")
    page.find_element("id", "remedy").click()
    wait(page, lambda: page.find_elements("css selector", "[data-live]"))
    WebDriverWait(page, 120).until(lambda _: "all of them" in page.page_source)
    check_quiet(page, served)


def test_curves_move_while_a_run_trains(page, serve_runs, tmp_path, tiny_config):
    go = threading.Event()
    config = tiny_config(run={"rounds": 3, "local_epochs": 1}, method={"name": "fedavg"})

    def on_round(progress):
        if progress.round >= 1:
            go.wait(60)

    run = threading.Thread(
        target=vitrail.run, args=(config, tmp_path / "runs" / "now"), kwargs={"on_round": on_round}
    )
    run.start()
    while not (tmp_path / "runs" / "now" / "server" / "card.json").exists():
        run.join(0.1)
    served = serve_runs(tmp_path / "runs")
    page.get(served.access.link)
    page.get(f"{served.base}/run/runs.now")
    wait(page, lambda: "1 of 3" in page.find_element("id", "state").text)
    assert "running" in page.find_element("id", "state").text
    assert page.find_element("id", "stop").is_displayed()
    go.set()
    run.join(60)
    wait(page, lambda: "finished" in page.find_element("id", "state").text)
    assert "3 of 3" in page.find_element("id", "state").text
    check_quiet(page, served)


PAGES = {"list": "/", "run": RUN, "ask": f"{RUN}/ask", "browse": f"{RUN}/browse",
         "audit": f"{RUN}/audit", "annotate": f"{RUN}/annotate", "leaves": f"{RUN}/leaves",
         "parts": f"{RUN}/parts", "plan": "/plan/sharing"}  # fmt: skip
SCREENS = {
    "desk": ((1280, 900), False, ""), "night": ((1280, 900), True, ""),
    "phone": ((390, 844), False, ""), "phone-night": ((390, 844), True, ""),
    "paper": ((900, 1200), False, "print"),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("looks", SCREENS)
def test_every_page_is_accessible_and_fits(page, served, screen, keep, name, looks):
    from axe_selenium_python import Axe

    page.get(served.access.link)
    if name == "plan":  # paper has no buttons: what they show is there before it is printed
        page.get(served.base + PAGES[name])
        if not page.find_elements("css selector", ".shares"):
            page.find_element("id", "preview").click()
            WebDriverWait(page, 120).until(lambda _: page.find_elements("css selector", ".shares"))
    screen(*SCREENS[looks])
    page.get(served.base + PAGES[name])
    if name == "ask":
        wait(page, lambda: page.find_elements("css selector", ".why-block"))
        wait(page, lambda: not page.find_elements("css selector", "[data-again]"))
    keep(f"live-{name}-{looks}")
    serious = []
    if looks != "paper":
        axe = Axe(page)
        axe.inject()
        serious = [
            (v["id"], [n["html"][:120] for n in v["nodes"]][:3])
            for v in axe.run()["violations"]
            if v["impact"] in ("serious", "critical")
        ]
    wide = page.execute_script("return document.documentElement.scrollWidth")
    screen((1280, 1000))
    assert serious == []
    assert wide <= SCREENS[looks][0][0]  # a phone widens its window to what does not fit
    assert [e for e in page.get_log("browser") if e["level"] == "SEVERE"] == []


def test_a_region_is_drawn_by_hand_and_an_image_is_unticked(page, served, live_runs):
    page.get(f"{served.base}{RUN}/annotate")
    stage = page.find_element("css selector", "[data-draw]")
    drag = ActionChains(page).move_to_element_with_offset(stage, -60, -40).click_and_hold()
    drag.move_by_offset(90, 60).release().perform()
    form = page.find_element("css selector", "form.finding")
    edges = [float(form.find_element("name", n).get_attribute("value"))
             for n in ("left", "top", "right", "bottom")]  # fmt: skip
    assert edges[0] < edges[2] and edges[1] < edges[3]
    form.find_element("name", "note").send_keys("a marker")
    form.find_element("name", "by").send_keys("the radiologist")
    form.find_element("css selector", "button").click()
    wait(page, lambda: "a marker" in page.find_element("tag name", "main").text)
    kept = json.loads((live_runs / "myth" / "annotations.json").read_text())["annotations"]
    assert kept[-1]["by"] == "the radiologist" and kept[-1]["at"]
    page.find_element("css selector", ".regions button").click()
    wait(page, lambda: "Nothing yet" in page.find_element("tag name", "main").text)
    check_quiet(page, served)


def test_a_scan_is_an_image_too(served, live_runs):
    import pydicom
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    scan = pydicom.Dataset()
    scan.file_meta = FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    scan.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    scan.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    scan.SOPClassUID = scan.file_meta.MediaStorageSOPClassUID
    scan.SOPInstanceUID = scan.file_meta.MediaStorageSOPInstanceUID
    scan.Rows = scan.Columns = 32
    scan.SamplesPerPixel, scan.PhotometricInterpretation = 1, "MONOCHROME2"
    scan.BitsAllocated, scan.BitsStored, scan.HighBit, scan.PixelRepresentation = 16, 12, 11, 0
    scan.PixelData = (np.arange(1024, dtype=np.uint16) * 4 % 4096).tobytes()
    buffer = io.BytesIO()
    scan.save_as(buffer, enforce_file_format=True)
    upload = httpx.post(f"{served.base}/upload", headers=served.headers, content=buffer.getvalue())
    query = {"image": upload.json()["image"]}
    answer = httpx.get(
        f"{served.base}{RUN}/answer.json", headers=served.headers, params=query, timeout=60
    )
    assert answer.status_code == 200 and answer.json()["size"] == [32, 32]
