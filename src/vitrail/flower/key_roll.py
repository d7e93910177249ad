"""The roll of a federation's keys after it was made: sites are added, their keys change or end.

A key that was in use is never thrown away: its public half lies in `server/revoked` under the
time it ended, and no site ever gets it again. The roll is written last, so that whoever reads it
finds everything it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.files import create, make_folder_name, write_bytes
from vitrail.flower.keys import Keys, RollEntry, locate_peer_key, make_stamp
from vitrail.flower.node_key import NODE_KEY, fingerprint_key, make_pair, read_public


@dataclass(frozen=True)
class ListedKey:
    """One key of the roll."""

    site: str
    fingerprint: str
    since: str
    revoked: str = ""


def add_site(keys: Keys, site: str, public: Path | None = None) -> list[str]:
    """Take a new site in, with the public half it sent or a new pair; who is to be handed what."""
    roll = _read_roll(keys)
    if not site:
        raise ConfigError("a site needs a name", where="--site")
    if site in roll and not roll[site].revoked:
        raise ConfigError(
            f"there is a site {site!r} already",
            where="--site",
            hint="`vitrail flower keys rotate` gives it a new key.",
        )
    _check_folder_names(site, [name for name in roll if name != site])
    return _install_key(keys, site, _get_pair(keys, site, public))


def rotate_site(keys: Keys, site: str, public: Path | None = None) -> list[str]:
    """Replace a site's key; the old one is revoked. Says who is to be handed what."""
    _check_active(keys, site)
    return _install_key(keys, site, _get_pair(keys, site, public))


def revoke_site(keys: Keys, site: str) -> list[str]:
    """End a site's key: the server lets it in no more, and the others forget it."""
    roll = _check_active(keys, site)
    stamp = make_stamp()
    _set_aside_public(keys, site, stamp)
    others = [name for name in keys.list_sites() if name != site]
    keys.write_roll({**roll, site: RollEntry(roll[site].since, stamp)})
    for name in (site, *others):
        locate_peer_key(keys.site(name), site).unlink(missing_ok=True)
    keys.public(site).unlink(missing_ok=True)
    lines = [f"{site} is refused from the next round on, and at the server's next start"]
    if others:
        peer = locate_peer_key(Path(), site)
        lines.append(f"to be deleted at {', '.join(others)}: {peer} in the folder of keys")
    return lines


def list_keys(keys: Keys) -> list[ListedKey]:
    """Every key, those in use first, then the revoked ones by the time they ended."""
    roll = _read_roll(keys)
    used = [
        ListedKey(name, fingerprint_key(read_public(keys.public(name))), entry.since)
        for name, entry in roll.items()
        if not entry.revoked
    ]
    return [*used, *_list_revoked(keys, list(roll))]


def set_aside(file: Path, folder: Path, stamp: str, mode: int) -> None:
    """Keep a copy of a file under the time it ended, before another takes its place."""
    if not file.exists():
        return
    target, number = folder / f"{file.stem}-{stamp}{file.suffix}", 1
    while target.exists():
        number += 1
        target = folder / f"{file.stem}-{stamp}-{number}{file.suffix}"
    create(target, file.read_bytes(), mode)


def _install_key(keys: Keys, site: str, pair: tuple[bytes, bytes]) -> list[str]:
    """Write a site's key wherever it belongs; the roll comes last."""
    secret, public = pair
    roll, stamp, home = _read_roll(keys), make_stamp(), keys.site(site)
    others = [name for name in keys.list_sites() if name != site]
    _set_aside_public(keys, site, stamp)
    set_aside(home / NODE_KEY, home / "revoked", stamp, 0o600)
    for name in (site, *others):
        write_bytes(locate_peer_key(keys.site(name), site), public, mode=0o644)
    for name in others:  # what a new site needs to know of the others
        write_bytes(locate_peer_key(home, name), keys.public(name).read_bytes(), mode=0o644)
    write_bytes(home / "ca.pem", keys.authority.read_bytes(), mode=0o644)
    if secret:
        write_bytes(home / NODE_KEY, secret, mode=0o600)
    else:
        (home / NODE_KEY).unlink(missing_ok=True)
    write_bytes(keys.public(site), public, mode=0o644)
    keys.write_roll({**roll, site: RollEntry(stamp)})
    whose = "its private key too" if secret else "beside the key it made"
    lines = [f"hand over to {site}: {home} ({whose})"]
    for name in others:
        lines.append(f"hand over to {name}: {locate_peer_key(keys.site(name), site)}")
    return [*lines, f"to be compared by another way: {fingerprint_key(public)}"]


def _get_pair(keys: Keys, site: str, public: Path | None) -> tuple[bytes, bytes]:
    """A new pair, or the public half that a site sent; one that was ever in use is refused."""
    pair = make_pair() if public is None else (b"", read_public(public))
    for name in _read_roll(keys):
        files = [keys.public(name), *find_revoked_files(keys, name)]
        if pair[1] in [read_public(file) for file in files if file.is_file()]:
            whose = "this site has or had" if name == site else f"{name!r} has or had"
            raise ConfigError(
                f"this is the key that {whose}",
                where=str(public),
                hint="`vitrail flower keys site DIR` makes a new one, in a new folder.",
            )
    return pair


def _read_roll(keys: Keys) -> dict[str, RollEntry]:
    if not keys.roll.is_file():
        raise RunError(
            "this is no folder of a federation's keys",
            where=str(keys.folder),
            hint="`vitrail flower keys init` makes one.",
        )
    return keys.read_roll()


def _check_active(keys: Keys, site: str) -> dict[str, RollEntry]:
    roll = _read_roll(keys)
    if site not in roll:
        raise ConfigError(
            f"there is no site {site!r}", where="--site", hint=suggest_name(site, list(roll))
        )
    if roll[site].revoked:
        raise ConfigError(
            f"the key of {site!r} was revoked on {roll[site].revoked}",
            where="--site",
            hint="`vitrail flower keys add` takes the site in again, with a new key.",
        )
    return roll


def _check_folder_names(site: str, others: list[str]) -> None:
    """Two names must not share a file, on disks that take north and North for the same either."""
    for name in others:
        if make_folder_name(name).lower() == make_folder_name(site).lower():
            raise ConfigError(f"{site!r} and {name!r} are too much alike", where="--site")


def _set_aside_public(keys: Keys, site: str, stamp: str) -> None:
    set_aside(keys.public(site), keys.revoked / make_folder_name(site), stamp, 0o644)


def find_revoked_files(keys: Keys, site: str) -> list[Path]:
    """The public keys that a site had before."""
    return sorted((keys.revoked / make_folder_name(site)).glob("*.pub"))


def _list_revoked(keys: Keys, sites: list[str]) -> list[ListedKey]:
    found = []
    for name in sites:
        for file in find_revoked_files(keys, name):
            ended = file.stem.removeprefix(f"{make_folder_name(name)}-")
            found.append(ListedKey(name, fingerprint_key(read_public(file)), "", ended))
    return sorted(found, key=lambda key: (key.revoked, key.site))
