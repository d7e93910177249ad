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
from vitrail.engine.release_summary import summarize_release
from vitrail.errors import ConfigError, VitrailError
from vitrail.flower.flower_processes import (
    find_free_port,
    find_program,
    start_process,
    stop_process,
)
from vitrail.flower.keys import is_readable_by_others
from vitrail.flower.run_terms import Terms, is_audited, make_agreed_plan
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import FAREWELL_FILE

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
class SuperNodeSettings:
    """How a site reaches its coordinator; `keys` is the folder handed to it, None is insecure."""

    config: SiteConfig
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
        if is_readable_by_others(self.keys / "node.key"):
            raise ConfigError(
                "others may read this private key",
                where=str(self.keys / "node.key"),
                hint="chmod 600 it, and ask for a new one if somebody did.",
            )

    def command(self) -> list[str]:
        """The SuperNode's command line."""
        node_config = f"vitrail-site={json.dumps(str(self.config.file))}"
        if self.seeded:
            node_config += " vitrail-seeded=true"
        if self.keys is not None:
            node_config += f" vitrail-keys={json.dumps(str(self.keys.resolve()))}"
        words = [find_program("flower-supernode"), "--superlink", self.server]
        words += ["--port", str(find_free_port()), "--node-config", node_config]
        if self.keys is None:
            return [*words, "--insecure"]
        return [
            *words,
            *("--root-certificates", str((self.keys / "ca.pem").resolve())),
            *("--auth-supernode-private-key", str((self.keys / "node.key").resolve())),
        ]


def summarize_terms(config: SiteConfig, terms: Terms) -> list[str]:
    """What will leave this site under some terms, in lines for its operator."""
    loaded = config.merge_terms(terms)
    plan, _ = make_agreed_plan(loaded)
    shared = summarize_release(plan)
    run, release, debias = loaded.config.run, loaded.config.release, loaded.config.debias
    remedies, suspected = ", ".join(debias.remedies), ", ".join(debias.suspected)
    return [
        f"method {loaded.config.method.name}, {run.rounds} rounds, "
        f"{run.local_epochs} local epochs, backbone {loaded.config.model.backbone}",
        f"classes: {', '.join(plan.classes)}",
        *((f"remedies against a bias: {remedies}; suspected: {suspected}",) if remedies else ()),
        *shared.lines(),
        f"in all: {shared.text()}",
        f"also: {_describe_numbers(plan)}",
        *((_IN_CLEAR,) if plan.secure else ()),
        f"defenses: {', '.join(release.defenses) or 'none: updates leave as they are'}",
        *(_AUDIT if is_audited(plan) else ()),
        _describe_kept(plan, config.name),
    ]


def _describe_numbers(plan: Plan) -> str:
    """The exact numbers that leave beside the tensors."""
    numbers = [] if plan.private else ["how many training images", "which classes have none"]
    numbers += plan.setting.told
    figures = dict.fromkeys(name for stage in plan.stages for name in stage.schema.metrics)
    numbers += [f"figures ({', '.join(figures)})"] if figures else []
    return ", ".join(numbers) or "no count of images and no figure"


def _describe_kept(plan: Plan, site: str) -> str:
    """What leaves as it is instead of in a mean; only where nothing does, no image can."""
    fields = dict.fromkeys(field.name for stage in plan.stages for field in stage.schema.up_kept)
    if not fields:
        return "no image leaves this site"
    return (
        f"BESIDE THE MODEL LEAVE, one by one: {', '.join(fields)}; "
        f"protection: {plan.method.protection(site)}"
    )


def run_site(node: SuperNodeSettings, tell: Tell, confirm: Confirm, once: bool = False) -> None:
    """Stay connected, ask the operator about each new run; `once` ends after a finished run."""
    node.check()
    config = node.config
    config.secret()
    before = set(_list_finished(config))
    with _keep_connected(node, tell):
        while not (once and set(_list_finished(config)) - before):
            for run, terms in config.proposals():
                _ask_operator(config, run, terms, tell, confirm)
            time.sleep(_POLL_SECONDS)
        time.sleep(_PARTING_SECONDS)


def _ask_operator(config: SiteConfig, run: str, terms: Terms, tell: Tell, confirm: Confirm) -> None:
    tell(f"a coordinator proposes run {run}; this would leave {config.name}:")
    try:
        for line in summarize_terms(config, terms):
            tell(f"  {line}")
    except VitrailError as err:
        tell(f"  it is refused, because it cannot be played here: {err}")
        config.decide(run, terms, yes=False)
        return
    config.decide(run, terms, confirm("Take part?"))


def _list_finished(config: SiteConfig) -> list[str]:
    return [
        path.parent.parent.name for path in config.folder.glob(f"runs/*/server/{FAREWELL_FILE}")
    ]


@contextlib.contextmanager
def _keep_connected(node: SuperNodeSettings, tell: Tell) -> Iterator[None]:
    """A SuperNode that is started again when it ends."""
    folder = node.config.folder
    folder.mkdir(parents=True, exist_ok=True)
    leaving = threading.Event()
    current: list[subprocess.Popen[bytes]] = []

    def keep() -> None:
        pause = _AGAIN_SECONDS
        with (folder / "flower.log").open("ab") as log:
            while not leaving.is_set():
                began = time.monotonic()
                current[:] = [start_process(node.command(), folder / "flower", log)]
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
            stop_process(process)
        thread.join(timeout=15)
