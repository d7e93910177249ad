"""Small runs to report on: public birds, and a hospital's images with names that bite."""

import csv
import functools
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.audit.audit_run import audit_run
from vitrail.report.compose import compose
from vitrail.report.pages.audit_page import ExampleCollector
from vitrail.report.sections.audit_pictures import keep_audit
from vitrail.report.viewer import Viewer
from vitrail.runs.opened_run import Run

PROTO = {
    "data": {"aviary": {"images": 200, "classes": 3, "seed": 7}},
    "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
    "model": {"prototypes": {"per_class": 2, "depth": 8}},
    "partition": {"kind": "iid", "sites": 3},
    "run": {"rounds": 2, "local_epochs": 1},
}
HOSTILE = {
    "classes": ("<script>alert(1)</script>", "x" * 200, "a & b \"quoted\" 'c' {0}"),
    "sites": ("../../x", "=cmd|' /C calc'!A0", "<img src=x onerror=alert(1)>"),
}
SECRET = "SECRET"  # in every file name and patient id


def write_hospital(folder, classes, sites, images_per_class=3):
    """Noise images in a manifest, so many of every class at every site, each its own patient."""
    draw = np.random.default_rng(0)
    rows = []
    for site in sites:
        for label in classes:
            for _ in range(images_per_class):
                name = f"{SECRET}-file-{len(rows):04d}.png"
                pixels = draw.integers(0, 256, (16, 16, 3), np.uint8)
                Image.fromarray(pixels).save(folder / name)
                rows.append([name, label, site, f"{SECRET}-patient-{len(rows):04d}"])
    file = folder / f"{SECRET}-list.csv"
    with file.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([["image", "label", "site", "patient"], *rows])
    return file


def make_hospital_config(file, **changes):
    return {
        "data": {
            "source": "manifest",
            "path": str(file),
            "image_size": 16,
            "site": "site",
            "patient": "patient",
        },
        "partition": {"kind": "column", "column": "site", "minimum": 2},
        "model": {"backbone": "resnet8", "width": 8, "prototypes": {"per_class": 1, "depth": 8}},
        "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        "run": {"rounds": 1, "local_epochs": 1, "batch_size": 8, "device": "cpu", "seed": 5},
        **changes,
    }


@pytest.fixture(scope="session")
def birds(tmp_path_factory, tiny_config):
    """Public runs of the same data: prototypes, subspaces, and a black box."""
    folder = tmp_path_factory.mktemp("birds")
    vitrail.run(tiny_config(**PROTO), folder / "myth")
    plain = {**PROTO, "method": {"name": "fedavg"}, "model": {}}
    vitrail.run(tiny_config(**plain), folder / "fedavg")
    vitrail.run(tiny_config(**{**plain, "method": {"name": "fedgrasp"}}), folder / "fedgrasp")
    return folder


@pytest.fixture(scope="session")
def audited(birds, tmp_path_factory):
    """The run with parts, audited, with the pictures kept at its sites."""
    copy = tmp_path_factory.mktemp("audited") / "run"
    shutil.copytree(birds / "myth", copy)
    run, album = Run(copy), ExampleCollector()
    keep_audit(run, audit_run(run, keep=album), album.examples)
    return run.path


@pytest.fixture(scope="session")
def secret(tmp_path_factory):
    """A run of a hospital whose names are hostile and whose images are nobody else's."""
    folder = tmp_path_factory.mktemp("secret")
    file = write_hospital(folder, HOSTILE["classes"], HOSTILE["sites"], images_per_class=6)
    vitrail.run(make_hospital_config(file), folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def report():
    """A function: the report of some runs for a reader, made once for each."""

    @functools.cache
    def compose_once(paths, site, with_images):
        return compose([Path(path) for path in paths], Viewer(site, with_images))

    def make(*paths, site=None, with_images=False):
        return compose_once(paths, site, with_images)

    return make


@pytest.fixture(scope="module")
def browser(chromium):
    """The browser without a network: a report asks for nothing."""
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    chromium.execute_cdp_cmd("Network.enable", {})
    chromium.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    chromium.get_log("browser")  # what was before is not ours
    yield chromium
    again = {**offline, "offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    chromium.execute_cdp_cmd("Network.emulateNetworkConditions", again)


VOID = {"meta", "br", "col", "input"}


class Page(HTMLParser):
    """Well formed, ids once; `sections` is their text, `raw` their markup, `scripts` what runs."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.sections, self.raw, self.header, self.scripts = {}, {}, "", []
        self.ids, self.links, self._open, self._section = set(), [], [], None
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        assert not any(name.startswith("on") for name in attributes), (
            f"{tag} runs code: {attributes}"
        )
        if (name := attributes.get("id")) is not None:
            assert name not in self.ids, f"two elements are called {name!r}"
            self.ids.add(name)
        for key in ("href", "src"):
            if key in attributes:
                self.links.append(attributes[key])
        if tag == "section":
            self._section = attributes["id"]
            self.sections[self._section] = self.raw[self._section] = ""
        if self._section is not None:
            self.raw[self._section] += self.get_starttag_text()
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()
        if tag == "section":
            self._section = None

    def handle_data(self, data):
        if "script" in self._open:
            self.scripts.append(data)
        elif self._section is not None:
            self.sections[self._section] += data
        elif "header" in self._open:
            self.header += data


@pytest.fixture(scope="session")
def read_page():
    """A function: a report as a browser would read it."""
    return Page


@pytest.fixture(scope="session")
def many_classes(tmp_path_factory):
    """A run of 200 classes."""
    folder = tmp_path_factory.mktemp("many")
    names = [f"class number {n}" for n in range(200)]
    file = write_hospital(folder, names, ["here"], images_per_class=2)
    vitrail.run(make_hospital_config(file, method={"name": "fedavg"}), folder / "run")
    return folder / "run"
