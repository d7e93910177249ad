"""One real browser for all tests of pages: it reaches loopback and nothing else."""

import base64
import shutil

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
DRIVER = shutil.which("chromedriver")
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--window-size=1280,1000",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="session")
def chromium():
    """A browser that resolves no name; without one, tests skip loudly."""
    if not (BROWSER and DRIVER):
        pytest.skip(
            "BROWSER NOT TESTED: install chromium and chromium-driver (.ci/run does, as root)"
        )
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = BROWSER
    for word in ARGUMENTS:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture
def screen(chromium):
    """A function: a screen of some size, by day or night, or paper."""

    def use(size, dark=False, medium=""):
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},  # scrolling takes no time
        ]
        chromium.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": medium, "features": features}
        )
        wanted = {"width": size[0], "height": size[1], "deviceScaleFactor": 1}
        chromium.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {**wanted, "mobile": size[0] < 640}
        )

    return use


@pytest.fixture
def keep(chromium, project):
    """A function: a picture of the whole page, kept as build output."""

    def shoot(name):
        high = chromium.execute_script("return document.documentElement.scrollHeight")
        wide = chromium.execute_script("return innerWidth")
        clip = {"x": 0, "y": 0, "width": wide, "height": min(high, 12000), "scale": 1}
        shot = chromium.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        folder = project / "build" / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    return shoot
