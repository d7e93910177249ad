"""A small federation on disk: the same birds as one simulation and as three sites' own folders."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from PIL import Image

from vitrail.config import Loaded, load, parse
from vitrail.data.load_images import load as load_images
from vitrail.engine.tasks import MissingReply
from vitrail.flower.link import Answered, MakeMessage
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import SiteServer
from vitrail.rng import derive_server_key

SITES = ("east", "north", "west")


@dataclass
class Loop:
    """A link inside this process; `down` are away, `spoil` changes what a site answers."""

    stations: dict[str, SiteServer]
    down: set[str] = field(default_factory=set)
    spoil: dict[str, object] = field(default_factory=dict)
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)

    def present(self) -> tuple[str, ...]:
        return tuple(name for name in self.stations if name not in self.down)

    def ask(
        self, sites: Sequence[str], make_message: MakeMessage, patience: float
    ) -> Iterator[Answered]:
        for name in sites:
            if name in self.down:
                yield name, MissingReply("it is not connected")
                continue
            raw = make_message(name)
            self.asked.append((name, raw))
            reply = self.stations[name].answer(raw)
            self.heard.append(reply)
            change = self.spoil.get(name)
            yield name, change(raw, reply) if callable(change) else reply


@dataclass
class Birds:
    """Where everything lies."""

    root: Path
    terms: dict[str, object]

    def simulated(self, **sections: Mapping[str, object]) -> Loaded:
        """The federation as one simulation over all images."""
        tree = {**self.terms, **sections}
        data = {**tree["data"], "source": "manifest", "path": str(self.root / "all.csv")}
        data |= {"site": "site", "split": "split"}
        return parse({**tree, "data": data, "partition": {"kind": "column"}}, self.root)

    def coordinator(self, **sections: Mapping[str, object]) -> Loaded:
        """What the coordinator's file says: no images."""
        return parse({**self.terms, **sections}, self.root)

    def home(self, name: str, folder: Path, yes: bool = True) -> SiteConfig:
        """A site's own file; its operator says yes to everything, or to nothing."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.toml"
        file.write_text(
            f'[site]\nname = "{name}"\nfolder = "at-{name}"\n'
            f'[data]\nsource = "manifest"\npath = "{self.root / f"{name}.csv"}"\nsplit = "split"\n'
        )
        home = SiteConfig.open(file)
        if yes:
            object.__setattr__(home, "wait", lambda run, terms, lines, patience: True)
        return home

    def loop(self, folder: Path) -> Loop:
        """All sites at once, drawing as a simulation does."""
        return Loop({s: SiteServer(self.home(s, folder), seeded=True) for s in SITES})


@pytest.fixture(scope="session")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Birds:
    root = tmp_path_factory.mktemp("birds")
    drawn = parse({"data": {"aviary": {"images": 90, "classes": 3}, "image_size": 32}})
    images = load_images(drawn.config.data, root, derive_server_key(1))
    rows = []
    for i, (pixels, label) in enumerate(zip(images.images, images.labels, strict=True)):
        path = root / f"{i:03d}.png"
        Image.fromarray(pixels).save(path)
        site = SITES[i % 3 if i < 80 else 0]
        rows.append((path.name, images.classes[label], site, "test" if i % 5 == 0 else "train"))
    for name in ("all", *SITES):
        with (root / f"{name}.csv").open("w", newline="") as handle:
            out = csv.writer(handle)
            out.writerow(["path", "label", "site", "split"])
            out.writerows(r for r in rows if name in ("all", r[2]))
    terms = {
        "data": {"classes": list(images.classes), "image_size": 32, "channels": 3},
        "model": {"backbone": "small-cnn", "width": 4},
        "run": {"rounds": 2, "batch_size": 8, "seed": 5},
    }
    return Birds(root, terms)


__all__ = ["load"]
