"""The live application over small runs, served for real on loopback."""

import json
import threading
import time

import numpy as np
import pytest
import tomli_w
import uvicorn
from PIL import Image

import vitrail
from vitrail.audit.audit_run import audit_run
from vitrail.live.application import make_application
from vitrail.live.catalog import Catalog
from vitrail.live.guard import Access
from vitrail.report.pages.audit_page import ExampleCollector
from vitrail.report.sections.audit_pictures import keep_audit

SHAPE = {
    "data": {"aviary": {"images": 240, "classes": 3, "seed": 7}},
    "partition": {"kind": "iid", "sites": 3},
    "run": {"rounds": 2, "local_epochs": 1},
    "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
    "model": {"prototypes": {"per_class": 2, "depth": 8}},
}


SHARING = {
    "data": {"image_size": 32, "aviary": {"images": 60, "classes": 2, "seed": 7}},
    "partition": {"kind": "iid", "sites": 2},
    "model": {"backbone": "small-cnn", "width": 4},
    "method": {"name": "fedxds", "warmup": 1, "sigma": 0.02},
    "run": {"rounds": 3, "local_epochs": 1, "batch_size": 8, "device": "cpu"},
}


@pytest.fixture(scope="session")
def live_runs(tmp_path_factory, tiny_config):
    """A folder of public runs: prototypes with an audit, and a black box."""
    folder = tmp_path_factory.mktemp("live") / "runs"
    run = vitrail.run(tiny_config(**SHAPE), folder / "myth")
    plain = {**SHAPE, "method": {"name": "fedavg"}, "model": {}}
    vitrail.run(tiny_config(**plain), folder / "fedavg")
    collector = ExampleCollector()
    keep_audit(run, audit_run(run, keep=collector), collector.examples)
    return folder


def make_manifest_config(file):
    """A short run with parts on the images of a manifest, whose column says whose they are."""
    return {
        "data": {"source": "manifest", "path": str(file), "image_size": 16,
                 "site": "site"},
        "partition": {"kind": "column", "column": "site", "minimum": 2},
        "model": {"backbone": "resnet8", "width": 8, "prototypes": {"per_class": 1, "depth": 8}},
        "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        "run": {"rounds": 1, "local_epochs": 1, "batch_size": 8, "device": "cpu", "seed": 5},
    }  # fmt: skip


@pytest.fixture(scope="session")
def hospital(tmp_path_factory):
    """A run on images that are nobody else's business: two sites, with a column that says whose."""
    folder = tmp_path_factory.mktemp("hospital")
    draw, lines = np.random.default_rng(0), ["image,label,site"]
    for n in range(36):
        pixels = draw.integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{n}.png")
        lines.append(f"{n}.png,{'ab'[n % 2]},{('north', 'south')[n // 18]}")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    vitrail.run(make_manifest_config(folder / "list.csv"), folder / "runs" / "secret")
    entry = {"class": "a", "verdict": "biased", "score": 4.2, "p_value": 0.01, "box": [1, 2, 5, 6]}
    audit = {
        "origin": "simulation",
        "level": 0.05,
        "null": {},
        "config": None,
        "sites": [
            {"site": name, "seen_by": [], "alarm": {}, "skipped": [], "classes": [dict(entry)]}
            for name in ("north", "south")
        ],
    }
    (folder / "runs" / "secret" / "audit.json").write_text(json.dumps(audit))
    return folder / "runs"


class Served:
    """A running application: its address and the header that opens it."""

    def __init__(self, access, server, application):
        self.access, self.server, self.application = access, server, application
        self.base = f"http://127.0.0.1:{access.port}"
        self.headers = {"authorization": f"Bearer {access.token}"}


@pytest.fixture(scope="session")
def serve_runs():
    """A function: serve some folders on a free port of loopback until the tests are over."""
    servers = []

    def serve(*paths, site=None):
        from vitrail.cli.serve import _listen

        handle = _listen("127.0.0.1", 0)
        access = Access("127.0.0.1", handle.getsockname()[1])
        application = make_application(Catalog(paths, site), access)
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [handle]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 20
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        servers.append((server, thread))
        return Served(access, server, application)

    yield serve
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def served(serve_runs, live_runs):
    """The folder of public runs and a planned one, served."""
    file = live_runs.parent / "sharing.toml"
    file.write_text(tomli_w.dumps(SHARING))
    return serve_runs(live_runs, file)
