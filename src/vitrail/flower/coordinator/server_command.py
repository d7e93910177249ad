"""`vitrail flower server`: one federation, coordinated by this process, over Flower's Fleet."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vitrail.config import load
from vitrail.config.debias_section import Debias
from vitrail.engine.run import Progress
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.server_words import keep_command
from vitrail.errors import ConfigError, RunError, VitrailError, suggest_name
from vitrail.files import is_locked, is_readable_by_others
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.coordinator.fleet_link import FleetLink
from vitrail.flower.coordinator.fleet_server import FleetServer
from vitrail.flower.events import EventTeller
from vitrail.flower.keys import Keys, find_certificate_problems
from vitrail.flower.run_terms import make_terms
from vitrail.flower.terms_digest import digest_terms
from vitrail.flower.terms_file import read_terms
from vitrail.flower.terms_signature import TermsSignature

_LOCK = "lock"


@dataclass(frozen=True)
class ServerSettings:
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

    def list_words(
        self,
        out: Path,
        sites: int | None,
        timeout: float,
        patience: float,
        signatures: Sequence[Path],
    ) -> list[str]:
        """What to say after `vitrail flower server` to go on with a run."""
        out = out.resolve()
        words = [str(out / "config.toml"), "--out", str(out), "--host", self.host]
        words += ["--port", str(self.port), "--timeout", str(timeout), "--patience", str(patience)]
        words += [] if sites is None else ["--sites", str(sites)]
        words += [w for file in signatures for w in ("--signature", str(file.resolve()))]
        if self.keys is None:
            return [*words, "--insecure"]
        return [*words, "--keys", str(self.keys.folder.resolve())]

    def list_sites(self) -> list[str]:
        """The names of the sites whose keys are known."""
        return [] if self.keys is None else self.keys.list_sites()


def run_server(
    file: Path,
    out: Path,
    server: ServerSettings,
    teller: EventTeller,
    sites: int | None = None,
    timeout: float = 600.0,
    patience: float = 600.0,
    signatures: Sequence[Path] = (),
) -> RunFolder:
    """Start a federation, or go on with one that was stopped; returns when it is finished."""
    folder = RunFolder(out)
    fresh = not folder.config_file.exists()
    if fresh:
        folder.check_free()
    else:
        file = folder.config_file
    loaded = load(file)
    if fresh:
        make_terms(loaded.config)
    server.check()
    signed = _read_signatures(file, signatures)
    participants = _list_participants(server, loaded.config.debias)
    expected = len(participants) if sites is None else sites
    words = server.list_words(folder.path, sites, timeout, patience, signatures)

    def on_round(progress: Progress) -> None:
        keep_command(folder.path, words)  # the folder is there now
        _tell_round(progress, teller)

    if expected < 1:
        raise ConfigError("nobody says how many sites to wait for", where="--sites")
    with (
        _make_scratch_folder(out) as scratch,
        FleetServer(
            server.host,
            server.port,
            server.keys,
            scratch,
            lambda text: teller.tell("refused", text),
        ) as fleet,
        _tell_trouble(folder, teller),
    ):
        where = f"{server.host}:{server.port}"
        teller.tell("listening", f"listening on {where}, waiting for {expected} sites")
        run_federation(
            FleetLink(fleet),
            loaded,
            out,
            sites=expected,
            timeout=timeout,
            patience=patience,
            on_round=on_round,
            teller=teller,
            names=participants,
            signatures=signed,
            keys=server.keys,
            limit_replies=fleet.limit_replies,
        )
    if not (folder.server / "finished").exists():
        raise RunError(
            "the federation stopped before its end",
            where=str(out),
            hint="The same command goes on from the last round that is on disk.",
        )
    teller.tell("finished", f"finished; run folder {folder.path}")
    return folder


@contextmanager
def _tell_trouble(folder: RunFolder, teller: EventTeller) -> Iterator[None]:
    """What stops a federation is in its log and before its operator."""
    try:
        yield
    except VitrailError as err:
        if folder.config_file.exists():
            folder.log(f"stopped: {err.what}")
        teller.tell("error", f"stopped: {err.what}")
        raise


def _read_signatures(federation: Path, files: Sequence[Path]) -> dict[str, str]:
    """Signatures by name; one under other terms is a mistake that sites would punish later."""
    if not files:
        return {}
    digest = digest_terms(read_terms(federation))
    found = {}
    for file in files:
        signature = TermsSignature.read(file)
        if signature.digest != digest:
            raise ConfigError(
                f"{signature.name} signed other terms (digest {signature.digest}, and these have "
                f"{digest})",
                where=str(file),
                hint="Write the terms again with `vitrail flower terms write`, and let them sign.",
            )
        found[signature.name] = signature.signature
    return found


def _list_participants(server: ServerSettings, debias: Debias) -> list[str]:
    """The sites with keys that are not left out; whoever is named must have one."""
    known = server.list_sites()
    for name in debias.suspected if known else ():
        if name not in known:
            raise ConfigError(
                f"there is no site {name!r}",
                where="debias.findings",
                hint=suggest_name(name, known),
            )
    return [name for name in known if name not in debias.left_out]


@contextmanager
def _make_scratch_folder(out: Path) -> Iterator[Path]:
    """A folder beside the run's for messages under way, gone afterwards; what matters is in the
    run folder. What a killed coordinator of this run left behind goes first."""
    prefix = f".{out.name}-messages-"
    out.parent.mkdir(parents=True, exist_ok=True)
    for old in out.parent.glob(f"{prefix}*"):
        if not is_locked(old / _LOCK):
            shutil.rmtree(old, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    try:
        with (scratch / _LOCK).open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _tell_round(progress: Progress, teller: EventTeller) -> None:
    """One line a round."""
    if progress.note and progress.note != "closing":
        return
    head = "final" if progress.note else f"round {progress.round}/{progress.rounds}"
    accuracy = "" if progress.accuracy is None else f"  accuracy {progress.accuracy:.3f}"
    away = f"  without {progress.dropped}" if progress.dropped else ""
    refused = f"  refused {progress.refused}" if progress.refused else ""
    teller.tell(
        "closing" if progress.note else "round",
        f"{head}{accuracy}  sites {progress.sites}{away}{refused}",
        round=progress.round,
        rounds=progress.rounds,
        accuracy=progress.accuracy,
        sites=progress.sites,
        absent=progress.dropped,
        refused=progress.refused,
        bytes=progress.bytes,
        seconds=round(progress.seconds, 3),
    )
