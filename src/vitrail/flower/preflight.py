"""`vitrail flower check`: what could go wrong in the night, tried in the afternoon."""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPSConnection
from pathlib import Path

from vitrail.config import load
from vitrail.config.schema import Data
from vitrail.data.load_images import load as load_images
from vitrail.data.shared_memory import use_site_cache
from vitrail.errors import VitrailError
from vitrail.files import is_readable_by_others
from vitrail.flower.keys import Keys, find_certificate_problems, read_last_day
from vitrail.flower.node_key import fingerprint_key, read_public
from vitrail.flower.ports import is_listening
from vitrail.flower.run_terms import find_missing_classes, make_terms
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.terms_digest import Terms
from vitrail.rng import derive_server_key as seeded

_ROOM = 2 * 2**30
_DRIFT_SECONDS = 60.0


@dataclass(frozen=True)
class CheckResult:
    """One thing that was tried."""

    what: str
    good: bool
    says: str


def examine(
    server: str | None, file: Path | None, federation: Path | None, keys: Path | None
) -> list[CheckResult]:
    """Try everything that the given files allow; nothing is trained and nothing is sent."""
    results: list[CheckResult] = []
    terms: Terms | None = None
    if federation is not None:
        try:
            terms = make_terms(load(federation).config)
            results.append(
                CheckResult("federation", True, f"{len(terms['data']['classes'])} classes")
            )
        except VitrailError as err:
            results.append(CheckResult("federation", False, str(err)))
    if keys is not None:
        results += _check_keys(keys)
    if server is not None:
        results += _check_server(server, None if keys is None else keys / "ca.pem")
    if file is not None:
        results += _check_site(file, terms)
    return results or [CheckResult("check", False, "nothing was given to look at")]


def _check_keys(folder: Path) -> Iterator[CheckResult]:
    """A coordinator's folder has a certificate, a site's has a node key."""
    keys = Keys(folder)
    if keys.certificate.exists():
        wrong = find_certificate_problems(keys.certificate, keys.authority, keys.private)
        says = "; ".join(wrong) or f"valid until {read_last_day(keys.certificate)}"
        yield CheckResult("certificate", not wrong, says)
    private = keys.private if keys.private.exists() else folder / "node.key"
    if not private.exists():
        yield CheckResult("private key", False, f"there is none in {folder}")
        return
    open_to_all = is_readable_by_others(private)
    yield CheckResult(
        "private key", not open_to_all, "others may read it" if open_to_all else "private"
    )
    for peer in sorted((folder / "peers").glob("*.pub")):
        try:
            yield CheckResult(f"key of {peer.stem}", True, fingerprint_key(read_public(peer)))
        except VitrailError as err:
            yield CheckResult(f"key of {peer.stem}", False, str(err))
    wrong = find_certificate_problems(keys.authority, keys.authority)
    says = "; ".join(wrong) or f"valid until {read_last_day(keys.authority)}"
    yield CheckResult("authority", not wrong, says)


def _check_server(address: str, authority: Path | None) -> Iterator[CheckResult]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        yield CheckResult("server", False, f"{address!r} is not host:port")
        return
    there = is_listening(host, int(port))
    yield CheckResult(
        "server", there, f"{address} answers" if there else f"nobody listens on {address}"
    )
    if there and authority is not None:
        yield from _check_handshake(host, int(port), authority)


def _check_handshake(host: str, port: int, authority: Path) -> Iterator[CheckResult]:
    """Is it the coordinator our authority signed for, and do the clocks agree?"""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        connection = HTTPSConnection(host, port, context=context, timeout=10)
        connection.request("GET", "/")
        date = connection.getresponse().getheader("date")
        connection.close()
    except (OSError, ssl.SSLError) as err:
        yield CheckResult("TLS", False, f"the server is not the one these keys are for ({err})")
        return
    yield CheckResult("TLS", True, "the server's certificate is signed by our authority")
    if date is not None:
        drift = abs(parsedate_to_datetime(date).timestamp() - time.time())
        yield CheckResult("clock", drift < _DRIFT_SECONDS, f"{drift:.0f} s from the server's")


def _check_site(file: Path, terms: Terms | None) -> Iterator[CheckResult]:
    try:
        site = SiteConfig.open(file)
    except VitrailError as err:
        yield CheckResult("site", False, str(err))
        return
    yield CheckResult("site", True, site.name)
    existing = next(p for p in (site.folder, *site.folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    yield CheckResult("disk", free > _ROOM, f"{free / 2**30:.1f} GiB free")
    try:
        use_site_cache(site.folder)
        data, base = _resolve_data(site, terms)
        images = load_images(data, base, seeded(0))
    except VitrailError as err:
        yield CheckResult("images", False, str(err))
        return
    yield CheckResult(
        "images", True, f"{len(images)} images of {len(set(images.labels.tolist()))} classes"
    )
    if terms is not None:
        lacks = find_missing_classes(images.labels, images.classes)
        yield CheckResult(
            "classes", True, f"without {', '.join(lacks)}" if lacks else "all are there"
        )


def _resolve_data(site: SiteConfig, terms: Terms | None) -> tuple[Data, Path]:
    if terms is not None:
        loaded = site.merge_terms(terms)
        return loaded.config.data, loaded.base
    return Data.model_validate(site.data), site.file.parent
