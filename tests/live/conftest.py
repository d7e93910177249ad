"""The live application over small runs, served for real on loopback."""

import threading
import time

import pytest
import uvicorn

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
    """The folder of public runs, served."""
    return serve_runs(live_runs)
