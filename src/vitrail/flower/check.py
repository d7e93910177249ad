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
from vitrail.data.source import load as load_images
from vitrail.errors import VitrailError
from vitrail.flower.agreement import Terms, lacking, terms_of
from vitrail.flower.home import Home
from vitrail.flower.keys import Keys, loose, problems_of
from vitrail.flower.node_key import fingerprint, read_public
from vitrail.flower.processes import listening
from vitrail.rng import server as seeded

_ROOM = 2 * 2**30
_DRIFT_SECONDS = 60.0


@dataclass(frozen=True)
class Line:
    """One thing that was tried."""

    what: str
    good: bool
    says: str


def examine(
    server: str | None, file: Path | None, federation: Path | None, keys: Path | None
) -> list[Line]:
    """Try everything that the given files allow; nothing is trained and nothing is sent."""
    found: list[Line] = []
    terms: Terms | None = None
    if federation is not None:
        try:
            terms = terms_of(load(federation).config)
            found.append(Line("federation", True, f"{len(terms['data']['classes'])} classes"))
        except VitrailError as err:
            found.append(Line("federation", False, str(err)))
    if keys is not None:
        found += _keys(keys)
    if server is not None:
        found += _server(server, None if keys is None else keys / "ca.pem")
    if file is not None:
        found += _site(file, terms)
    return found or [Line("check", False, "nothing was given to look at")]


def _keys(folder: Path) -> Iterator[Line]:
    """A coordinator's folder has a certificate, a site's has a node key."""
    keys = Keys(folder)
    if keys.certificate.exists():
        wrong = problems_of(keys.certificate, keys.authority, keys.private)
        yield Line("certificate", not wrong, "; ".join(wrong) or "valid")
    private = keys.private if keys.private.exists() else folder / "node.key"
    if not private.exists():
        yield Line("private key", False, f"there is none in {folder}")
        return
    open_to_all = loose(private)
    yield Line("private key", not open_to_all, "others may read it" if open_to_all else "private")
    for peer in sorted((folder / "peers").glob("*.pub")):
        try:
            yield Line(f"key of {peer.stem}", True, fingerprint(read_public(peer)))
        except VitrailError as err:
            yield Line(f"key of {peer.stem}", False, str(err))
    wrong = problems_of(keys.authority, keys.authority)
    yield Line("authority", not wrong, "; ".join(wrong) or "valid")


def _server(address: str, authority: Path | None) -> Iterator[Line]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        yield Line("server", False, f"{address!r} is not host:port")
        return
    there = listening(host, int(port))
    yield Line("server", there, f"{address} answers" if there else f"nobody listens on {address}")
    if there and authority is not None:
        yield from _handshake(host, int(port), authority)


def _handshake(host: str, port: int, authority: Path) -> Iterator[Line]:
    """Is it the coordinator our authority signed for, and do the clocks agree?"""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        connection = HTTPSConnection(host, port, context=context, timeout=10)
        connection.request("GET", "/")
        date = connection.getresponse().getheader("date")
        connection.close()
    except (OSError, ssl.SSLError) as err:
        yield Line("TLS", False, f"the server is not the one these keys are for ({err})")
        return
    yield Line("TLS", True, "the server's certificate is signed by our authority")
    if date is not None:
        drift = abs(parsedate_to_datetime(date).timestamp() - time.time())
        yield Line("clock", drift < _DRIFT_SECONDS, f"{drift:.0f} s from the server's")


def _site(file: Path, terms: Terms | None) -> Iterator[Line]:
    try:
        home = Home.open(file)
    except VitrailError as err:
        yield Line("site", False, str(err))
        return
    yield Line("site", True, home.name)
    existing = next(p for p in (home.folder, *home.folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    yield Line("disk", free > _ROOM, f"{free / 2**30:.1f} GiB free")
    try:
        data, base = _data(home, terms)
        images = load_images(data, base, seeded(0))
    except VitrailError as err:
        yield Line("images", False, str(err))
        return
    yield Line(
        "images", True, f"{len(images)} images of {len(set(images.labels.tolist()))} classes"
    )
    if terms is not None:
        lacks = lacking(images.labels, images.classes)
        yield Line("classes", True, f"without {', '.join(lacks)}" if lacks else "all are there")


def _data(home: Home, terms: Terms | None) -> tuple[Data, Path]:
    if terms is not None:
        loaded = home.joined(terms)
        return loaded.config.data, loaded.base
    return Data.model_validate(home.data), home.file.parent
