"""What the tests of commands share: a small run, and reading the page that one wrote."""

from html.parser import HTMLParser

import pytest


class _Page(HTMLParser):
    VOID = {"meta", "br", "img", "image", "use", "rect", "path"}

    def __init__(self, text):
        super().__init__()
        self.open, self.labels, self.text, self.pixels = [], [], "", 0
        self.feed(text)
        assert not self.open and all(self.labels)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        assert tag not in ("script", "iframe", "link", "object", "img")
        assert not any(name.startswith("on") for name in found)
        self._sources(tag, attributes)
        if found.get("role") == "img":
            self.labels.append(found["aria-label"])
        elif tag == "svg":
            assert found.get("aria-hidden") == "true"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self._sources(tag, attributes)

    def _sources(self, tag, attributes):
        self.pixels += tag == "image"
        for name, value in attributes:
            assert name not in ("src", "href") or value.startswith(("data:image/png;base64,", "#"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def read_page():
    """A function: a page that is whole, with nothing from elsewhere and every picture in words."""
    return lambda path: _Page(path.read_text(encoding="utf-8"))


BIRDS = """
[data]
image_size = 16
[data.aviary]
images = 40
classes = 2
[partition]
sites = 2
[model]
backbone = "small-cnn"
width = 4
[run]
rounds = {rounds}
"""


@pytest.fixture
def birds_file(tmp_path):
    """A function: write `birds.toml`, a small run of some rounds, into the test's own folder."""
    return lambda rounds=2: (tmp_path / "birds.toml").write_text(BIRDS.format(rounds=rounds))
