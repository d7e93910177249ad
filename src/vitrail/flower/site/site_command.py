"""`vitrail flower site`: a site that stays connected, and an operator who is asked.

This process keeps the connection and imports no torch; a resident process answers the messages.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.errors import ConfigError, RunError
from vitrail.files import is_readable_by_others
from vitrail.flower.events import (
    EVENTS_FILE,
    Event,
    EventFollower,
    EventLog,
    LogFormat,
    Show,
    format_event,
)
from vitrail.flower.site.fleet_client import LARGEST_RESPONSE, FleetClient
from vitrail.flower.site.private_files import protect_new_files, repair_permissions
from vitrail.flower.site.resident_process import ResidentLostError, ResidentProcess
from vitrail.flower.site.site_config import Proposal, SiteConfig
from vitrail.log_file import begin_log

Confirm = Callable[[str], bool]
_POLL_SECONDS = 0.5
_PARTING_SECONDS = 2.0  # for the reply to the last message to get through


@dataclass(frozen=True)
class SiteConnection:
    """How a site reaches its coordinator; `keys` is the folder handed to it, None is insecure."""

    config: SiteConfig
    server: str
    keys: Path | None = None
    seeded: bool = False

    def check(self) -> None:
        """Refuse what cannot work, before anything is started."""
        host, _, port = self.server.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ConfigError(f"{self.server!r} is not host:port", where="--server")
        if self.seeded and self.keys is not None:
            raise ConfigError(
                "draws that follow from the seed are for tests",
                where="--seeded",
                hint="It is only possible with --insecure.",
            )
        if self.keys is None:
            return
        for name in ("node.key", "ca.pem"):
            if not (self.keys / name).is_file():
                raise ConfigError(
                    f"there is no {name}",
                    where=str(self.keys),
                    hint="A site's own key is made with `vitrail flower keys site`; the rest comes "
                    "from the coordinator's `vitrail flower keys init`.",
                )
        if is_readable_by_others(self.keys / "node.key"):
            raise ConfigError(
                "others may read this private key",
                where=str(self.keys / "node.key"),
                hint="chmod 600 it, and ask for a new one if somebody did.",
            )


def run_site(
    site: SiteConnection,
    show: Show,
    confirm: Confirm,
    once: bool = False,
    form: LogFormat = "text",
) -> None:
    """Stay connected, ask the operator about each new run; `once` ends after a finished run, and
    with an error after one that this site takes no part in."""
    site.check()
    config = site.config
    protect_new_files()
    changed = repair_permissions(config.folder)
    screen = EventScreen(config, show, form)
    tell = screen.tell
    if changed:
        tell(f"{changed} files and folders of this site were open to others, and are no longer")
    screen.write("started", f"site {config.name}: files in {config.folder}")
    screen.update()
    resident = ResidentProcess(
        config.file, site.keys, site.seeded, config.folder / "resident.log", tell
    )
    resident.start()
    leaving = threading.Event()
    memory = config.limits.memory_gib
    largest = LARGEST_RESPONSE if memory is None else int(memory * 2**30)
    client = FleetClient(site.server, site.keys, config.folder, min(largest, LARGEST_RESPONSE))
    connection = threading.Thread(
        target=client.serve, args=(_make_answer(config, resident), leaving, tell), daemon=True
    )
    before = set(config.finished_runs())
    connection.start()
    try:
        while not (once and set(config.finished_runs()) - before):
            screen.update()
            if once and screen.declined is not None:
                time.sleep(_PARTING_SECONDS)
                raise RunError(str(screen.declined["text"]), where=str(config.folder))
            if not connection.is_alive():
                raise ConfigError("the connection ended for good", where="--server")
            for proposal in config.proposals():
                _ask_operator(screen, proposal, confirm)
            time.sleep(_POLL_SECONDS)
        time.sleep(_PARTING_SECONDS)
    finally:
        leaving.set()
        connection.join(timeout=15.0)
        resident.stop()
        screen.update()
    screen.write("left", "finished")
    screen.update()


class EventScreen:
    """Shows what this process and the resident one write down, in the order of one file."""

    def __init__(self, config: SiteConfig, show: Show, form: LogFormat) -> None:
        self.config = config
        self.declined: Event | None = None
        self._show = show
        self._form: LogFormat = form
        begin_log(config.log_file, form == "json")
        path = config.folder / EVENTS_FILE
        self._log = EventLog(path, {"site": config.name})
        self._follower = EventFollower.from_end(path)

    def tell(self, text: str) -> None:
        """Something about the connection, or about the resident process."""
        self.write("connection", text)

    def write(self, kind: str, text: str, **facts: Any) -> None:
        """An event of this process."""
        self._log.write(kind, text, **facts)

    def update(self) -> None:
        """Show what is new; the site's log has it too."""
        for event in self._follower.read_new():
            if event["event"] == "declined":
                self.declined = event
            self._show(format_event(event, self._form))
            facts = {name: value for name, value in event.items() if name not in ("time", "text")}
            self.config.log(str(event.get("text", "")), **facts)


def _make_answer(config: SiteConfig, resident: ResidentProcess) -> Callable[[bytes], bytes | None]:
    """Who answers a message: an empty one asks for the site's name; None leaves it unanswered."""

    def answer(raw: bytes) -> bytes | None:
        if not raw:
            return config.name.encode()
        try:
            return resident.answer(raw)
        except ResidentLostError as err:
            config.log(str(err))
            resident.tell(str(err))
            return None

    return answer


def _ask_operator(screen: EventScreen, proposal: Proposal, confirm: Confirm) -> None:
    config, run = screen.config, proposal.run
    screen.write(
        "proposal", f"a coordinator proposes run {run}; this would leave {config.name}:", run=run
    )
    for line in proposal.lines:
        screen.write("terms", f"  {line}", run=run)
    screen.update()
    config.decide(proposal, confirm("Take part?"))
