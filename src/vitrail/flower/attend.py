"""`vitrail flower site`: a SuperNode that stays, and an operator who is asked."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vitrail.engine.plan import Plan
from vitrail.engine.shared import shared_by
from vitrail.errors import ConfigError, VitrailError
from vitrail.flower.agreement import Terms, agreed_plan, audited
from vitrail.flower.home import Home
from vitrail.flower.keys import loose
from vitrail.flower.processes import begin, end, free_port, program
from vitrail.flower.station import PARTED

Tell = Callable[[str], None]
Confirm = Callable[[str], bool]
_POLL_SECONDS = 0.5
_AGAIN_SECONDS, _AT_MOST = 5.0, 60.0  # a start costs seconds of a core: wait longer each time
_PARTING_SECONDS = 5.0  # for the reply to the last message to get through
_AUDIT = (
    "at the end, for everybody's audit: how well each place of an image tells the classes apart "
    "here, and how many images of each class that was measured on",
)
_IN_CLEAR = (
    "these figures are not masked, and the sites of a round learn how much each of them counts"
)


@dataclass(frozen=True)
class Node:
    """How a site reaches its coordinator; `keys` is the folder handed to it, None is insecure."""

    home: Home
    server: str
    keys: Path | None = None
    seeded: bool = False

    def check(self) -> None:
        """Refuse what Flower would refuse later, in other words."""
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
        if loose(self.keys / "node.key"):
            raise ConfigError(
                "others may read this private key",
                where=str(self.keys / "node.key"),
                hint="chmod 600 it, and ask for a new one if somebody did.",
            )

    def command(self) -> list[str]:
        """The SuperNode's command line."""
        told = f"vitrail-site={json.dumps(str(self.home.file))}"
        if self.seeded:
            told += " vitrail-seeded=true"
        if self.keys is not None:
            told += f" vitrail-keys={json.dumps(str(self.keys.resolve()))}"
        found = [program("flower-supernode"), "--superlink", self.server]
        found += ["--port", str(free_port()), "--node-config", told]
        if self.keys is None:
            return [*found, "--insecure"]
        return [
            *found,
            *("--root-certificates", str((self.keys / "ca.pem").resolve())),
            *("--auth-supernode-private-key", str((self.keys / "node.key").resolve())),
        ]


def summary(home: Home, terms: Terms) -> list[str]:
    """What will leave this site under some terms, in lines for its operator."""
    loaded = home.joined(terms)
    plan, _ = agreed_plan(loaded)
    shared = shared_by(plan)
    run, release, debias = loaded.config.run, loaded.config.release, loaded.config.debias
    remedies, suspected = ", ".join(debias.remedies), ", ".join(debias.suspected)
    return [
        f"method {loaded.config.method.name}, {run.rounds} rounds, "
        f"{run.local_epochs} local epochs, backbone {loaded.config.model.backbone}",
        f"classes: {', '.join(plan.classes)}",
        *((f"remedies against a bias: {remedies}; suspected: {suspected}",) if remedies else ()),
        *shared.lines(),
        f"in all: {shared.text()}",
        f"also: {_numbers(plan)}",
        *((_IN_CLEAR,) if plan.secure else ()),
        f"defenses: {', '.join(release.defenses) or 'none: updates leave as they are'}",
        *(_AUDIT if audited(plan) else ()),
        _kept(plan, home.name),
    ]


def _numbers(plan: Plan) -> str:
    """The exact numbers that leave beside the tensors."""
    told = [] if plan.private else ["how many training images", "which classes have none"]
    told += plan.setting.told
    figures = dict.fromkeys(name for stage in plan.stages for name in stage.schema.metrics)
    told += [f"figures ({', '.join(figures)})"] if figures else []
    return ", ".join(told) or "no count of images and no figure"


def _kept(plan: Plan, site: str) -> str:
    """What leaves as it is instead of in a mean; only where nothing does, no image can."""
    fields = dict.fromkeys(field.name for stage in plan.stages for field in stage.schema.up_kept)
    if not fields:
        return "no image leaves this site"
    return (
        f"BESIDE THE MODEL LEAVE, one by one: {', '.join(fields)}; "
        f"protection: {plan.method.protection(site)}"
    )


def attend(node: Node, tell: Tell, confirm: Confirm, once: bool = False) -> None:
    """Stay connected, ask the operator about each new run; `once` ends after a finished run."""
    node.check()
    home = node.home
    home.secret()
    before = set(_finished(home))
    with _kept_alive(node, tell):
        while not (once and set(_finished(home)) - before):
            for run, terms in home.proposals():
                _ask(home, run, terms, tell, confirm)
            time.sleep(_POLL_SECONDS)
        time.sleep(_PARTING_SECONDS)


def _ask(home: Home, run: str, terms: Terms, tell: Tell, confirm: Confirm) -> None:
    tell(f"a coordinator proposes run {run}; this would leave {home.name}:")
    try:
        for line in summary(home, terms):
            tell(f"  {line}")
    except VitrailError as err:
        tell(f"  it is refused, because it cannot be played here: {err}")
        home.decide(run, terms, yes=False)
        return
    home.decide(run, terms, confirm("Take part?"))


def _finished(home: Home) -> list[str]:
    return [path.parent.parent.name for path in home.folder.glob(f"runs/*/server/{PARTED}")]


@contextlib.contextmanager
def _kept_alive(node: Node, tell: Tell) -> Iterator[None]:
    """A SuperNode that is started again when it ends."""
    home = node.home.folder
    home.mkdir(parents=True, exist_ok=True)
    leaving = threading.Event()
    current: list[subprocess.Popen[bytes]] = []

    def keep() -> None:
        pause = _AGAIN_SECONDS
        with (home / "flower.log").open("ab") as log:
            while not leaving.is_set():
                began = time.monotonic()
                current[:] = [begin(node.command(), home / "flower", log)]
                code = current[0].wait()
                if not leaving.is_set():
                    if time.monotonic() - began > _AT_MOST:
                        pause = _AGAIN_SECONDS
                    tell(f"the connection ended (code {code}); trying again in {pause:.0f} s")
                    leaving.wait(pause)
                    pause = min(_AT_MOST, 2 * pause)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        leaving.set()
        for process in current:
            end(process)
        thread.join(timeout=15)
