"""`vitrail flower server`: a SuperLink, the sites' keys registered with it, and one run."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from vitrail.config import load
from vitrail.config.debias_section import Debias
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.flower.flower_processes import (
    find_program,
    make_environment,
    start_process,
    stop_process,
    wait_for_port,
)
from vitrail.flower.keys import Keys, find_certificate_problems, is_readable_by_others
from vitrail.flower.run_terms import make_terms

APP = Path(__file__).parent.parent / "app"
_NAME = "vitrail"
_START_SECONDS = 60.0
Tell = Callable[[str], None]


@dataclass(frozen=True)
class SuperLinkSettings:
    """Where a coordinator listens and with which keys; `keys` None is insecure."""

    host: str = "127.0.0.1"
    port: int = 8000
    keys: Keys | None = None

    def check(self) -> None:
        """Refuse keys that no site would accept, before anything is started."""
        if self.keys is None:
            return
        for path in (self.keys.certificate, self.keys.authority, self.keys.private, self.keys.roll):
            if not path.is_file():
                raise ConfigError(
                    f"there is no {path.name}",
                    where=str(path.parent),
                    hint="`vitrail flower keys init` makes the keys of a federation.",
                )
        wrong = find_certificate_problems(
            self.keys.certificate, self.keys.authority, self.keys.private
        )
        if wrong:
            raise ConfigError(
                f"the coordinator's certificate cannot be used: {wrong[0]}",
                where=str(self.keys.certificate),
            )
        if is_readable_by_others(self.keys.private):
            raise ConfigError(
                "others may read this private key",
                where=str(self.keys.private),
                hint="chmod 600 it, and make new keys if somebody did.",
            )

    def sites(self) -> list[str]:
        """The names of the sites whose keys are known."""
        if self.keys is None:
            return []
        return [str(name) for name in json.loads(self.keys.roll.read_text(encoding="utf-8"))]

    def command(self) -> list[str]:
        """The SuperLink's command line."""
        words = [find_program("flower-superlink"), "--host", self.host, "--port", str(self.port)]
        words += ["--disable-runtime-dependency-installation", "--isolation", "subprocess"]
        if self.keys is None:
            return [*words, "--insecure"]
        return [
            *words,
            *("--ssl-certfile", str(self.keys.certificate.resolve())),
            *("--ssl-keyfile", str(self.keys.private.resolve())),
            *("--ssl-ca-certfile", str(self.keys.authority.resolve())),
            "--enable-supernode-auth",
        ]

    @property
    def here(self) -> str:
        """Where it is reached from its own machine."""
        return "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host

    def connection(self) -> dict[str, object]:
        """How Flower's own commands reach it."""
        settings: dict[str, object] = {"address": f"{self.here}:{self.port}"}
        if self.keys is None:
            return {**settings, "insecure": True}
        return {**settings, "root-certificates": str(self.keys.authority.resolve())}


def run_server(
    file: Path,
    out: Path,
    server: SuperLinkSettings,
    tell: Tell,
    sites: int | None = None,
    timeout: float = 600.0,
    patience: float = 600.0,
) -> RunFolder:
    """Start a federation, or go on with one that was stopped; returns when it is finished."""
    folder = RunFolder(out)
    if folder.config_file.exists():
        file = folder.config_file
    else:
        folder.check_free()
        make_terms(load(file).config)
    server.check()
    playing = _list_participants(server, load(file).config.debias)
    expected = len(playing) if sites is None else sites
    if expected < 1:
        raise ConfigError("nobody says how many sites to wait for", where="--sites")
    asked: dict[str, object] = {
        "config": str(file.resolve()),
        "out": str(out.resolve()),
        "sites": expected,
        "timeout": float(timeout),
        "patience": float(patience),
        "insecure": server.keys is None,
    }
    with _make_scratch_folder() as scratch, _run_superlink(server, scratch):
        for name in server.sites():
            assert server.keys is not None
            key = str(server.keys.public(name).resolve())
            _run_flwr(scratch, "supernode", "register", key, _NAME, "--name", name)
        tell(f"listening on {server.host}:{server.port}, waiting for {expected} sites")
        _submit_run(scratch, asked, tell)
    if not (folder.server / "finished").exists():
        raise RunError(
            "the federation stopped before its end",
            where=str(out),
            hint="The same command goes on from the last round that is on disk.",
        )
    return folder


def _list_participants(server: SuperLinkSettings, debias: Debias) -> list[str]:
    """The sites with keys that are not left out; whoever is named must have one."""
    known = server.sites()
    for name in debias.suspected if known else ():
        if name not in known:
            raise ConfigError(
                f"there is no site {name!r}",
                where="debias.findings",
                hint=suggest_name(name, known),
            )
    return [name for name in known if name not in debias.left_out]


@contextlib.contextmanager
def _make_scratch_folder() -> Iterator[Path]:
    """A folder for Flower's own files, gone afterwards; what matters is in the run folder."""
    scratch = Path(tempfile.mkdtemp(prefix="vitrail-flower-"))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _run_superlink(server: SuperLinkSettings, scratch: Path) -> Iterator[None]:
    config = {"superlink": {"default": _NAME, _NAME: server.connection()}}
    (scratch / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    log = scratch / "superlink.log"
    with log.open("wb") as handle:
        process = start_process(server.command(), scratch, handle)
        try:
            wait_for_port(server.here, server.port, process, _START_SECONDS)
            yield
        except RunError as err:
            err.add_note(log.read_text(errors="replace")[-2000:])
            raise
        finally:
            stop_process(process)


def _run_flwr(scratch: Path, *words: str) -> None:
    done = subprocess.run(
        [find_program("flwr"), *words],
        env=make_environment(scratch),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        output = (done.stdout + done.stderr).strip().splitlines()
        raise RunError(f"flwr {words[0]} failed: {' '.join(output)[-400:]}")


def _submit_run(scratch: Path, asked: dict[str, object], tell: Tell) -> None:
    """Submit the run and pass on what it says until it ends."""
    settings = scratch / "run.toml"
    settings.write_text(tomli_w.dumps(asked), encoding="utf-8")
    app = scratch / "app"
    shutil.copytree(APP, app)
    command = [
        find_program("flwr"),
        "run",
        str(app),
        _NAME,
        "--stream",
        "--run-config",
        str(settings),
    ]
    process = subprocess.Popen(
        command,
        env=make_environment(scratch),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "vitrail: " in line:
                tell(line.strip().split("vitrail: ", 1)[1])
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
