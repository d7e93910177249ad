"""Plays a recorded case: as a simulation, or over the Flower link inside this process."""

from __future__ import annotations

import csv
import hashlib
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import Case
from measure import measure
from PIL import Image

import vitrail
from vitrail.config import parse
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.link import Answered, MakeMessage
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import SiteServer

torch.set_num_threads(1)
SITES = ("east", "north", "west")
CLASSES = ("blue", "green", "red")


def play(case: Case, folder: Path) -> dict[str, Any]:
    """Run a case in an empty folder; what it comes to."""
    if case.link == "flower":
        return _linked(case.config(), folder)
    return measure(vitrail.run(case.config(), folder / "run").path)


class Willing(SiteConfig):
    """A site whose operator agrees to everything."""

    def wait(self, run: str, terms: Any, lines: Any, patience: float) -> bool:
        return True


class Wire:
    """A link inside this process."""

    def __init__(self, stations: Mapping[str, SiteServer]) -> None:
        self.stations = stations

    def present(self) -> tuple[str, ...]:
        return tuple(self.stations)

    def ask(
        self, sites: Sequence[str], make_message: MakeMessage, patience: float
    ) -> Iterator[Answered]:
        for name in sites:
            yield name, self.stations[name].answer(make_message(name))


def _linked(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Three sites with images of their own and a coordinator without any."""
    images = {"classes": list(CLASSES), "image_size": 16, "channels": 3}
    terms = {key: value for key, value in config.items() if key not in ("data", "partition")}
    terms = {**terms, "data": images, "run": {**config["run"]}}
    with _known_secrets():
        stations = {}
        for number, name in enumerate(SITES):
            home = SiteConfig.open(_site(folder, name, number))
            stations[name] = SiteServer(Willing(**vars(home)), seeded=True)
        run_federation(Wire(stations), parse(terms, folder), folder / "run", len(SITES))
    own = {name: next((folder / f"at-{name}" / "runs").iterdir()) for name in SITES}
    return measure(folder / "run", own)


def _site(folder: Path, name: str, number: int) -> Path:
    """A site's file and its images: noise with a stain in its class's color."""
    images = folder / f"images-{name}"
    images.mkdir()
    draw = np.random.Generator(np.random.PCG64(number))
    rows = []
    for i in range(15):
        label = i % 3
        pixels = draw.integers(0, 120, (16, 16, 3), dtype=np.uint8)
        x, y = draw.integers(0, 10, 2)
        pixels[y : y + 6, x : x + 6, 2 - label] = 255
        Image.fromarray(pixels).save(images / f"{i:02d}.png")
        rows.append((f"{i:02d}.png", CLASSES[label], "test" if i < 3 else "train"))
    with (images / "all.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("path", "label", "split"), *rows])
    file = folder / f"{name}.toml"
    file.write_text(
        f'[site]\nname = "{name}"\nfolder = "at-{name}"\n[data]\nsource = "manifest"\n'
        f'path = "images-{name}/all.csv"\nsplit = "split"\n'
    )
    return file


@contextmanager
def _known_secrets() -> Iterator[None]:
    """A real coordinator makes up the run's name and a secret: the same ones every time here."""
    real = secrets.token_bytes, secrets.token_hex
    made = 0

    def token_bytes(size: int = 32) -> bytes:
        nonlocal made
        made += 1
        return hashlib.shake_128(f"recorded {made}".encode()).digest(size)

    secrets.token_bytes = token_bytes
    secrets.token_hex = lambda size=32: token_bytes(size).hex()
    try:
        yield
    finally:
        secrets.token_bytes, secrets.token_hex = real


if __name__ == "__main__":
    sys.exit("This file is imported: use record.py.")
