"""`vitrail flower keys ...`: certificates and keys, made, listed, changed and ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.errors import ConfigError, RunError
from vitrail.flower.ports import INSTALL

keys_app = typer.Typer(help="Certificates and keys.", no_args_is_help=True)

KeysFolder = Annotated[Path, typer.Argument(help="The folder of `keys init`.")]
PublicFile = Annotated[
    Path | None, typer.Option("--public", help="The public half of a key that the site made.")
]


def require_flower() -> None:
    """Refuse a command that needs Flower where it is not installed."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise RunError(
            "Flower is not installed",
            hint=INSTALL,
        ) from None


@keys_app.command("init")
def keys_init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the keys.")],
    host: Annotated[
        list[str], typer.Option("--host", help="A name or address of the coordinator's machine.")
    ],
    site: Annotated[
        list[str] | None, typer.Option("--site", help="A site to make a key for; once for each.")
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option("--public", metavar="NAME=FILE", help="A site that made its own key."),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 365,
) -> None:
    """Make a federation's authority, the coordinator's certificate and each site's key."""
    require_flower()
    from vitrail.flower.keys import make_keys

    public_keys = dict(_parse_named_file(word) for word in public or ())
    sites = [*(site or ()), *(_parse_named_file(word)[0] for word in public or ())]
    keys = make_keys(folder, sites, host, days, public_keys)
    typer.echo(f"the coordinator keeps {keys.folder}")
    for name in sites:
        whose = "beside the key it made" if name in public_keys else "its private key too"
        typer.echo(f"hand over to {name}: {keys.site(name)} ({whose})")
    typer.echo(f"keep {keys.folder / 'authority'} off line; it is needed for new certificates only")


@keys_app.command("site")
def keys_site(folder: Annotated[Path, typer.Argument(help="The site's folder of keys.")]) -> None:
    """At a site: make its own key, whose private half nobody else ever has."""
    require_flower()
    from vitrail.flower.node_key import fingerprint_key, make_node_key, read_public

    public = make_node_key(folder)
    typer.echo(f"send to the coordinator: {public}")
    typer.echo(f"to be compared by another way: {fingerprint_key(read_public(public))}")
    typer.echo(f"what comes back (ca.pem, peers) belongs into {folder}")


@keys_app.command("add")
def keys_add(
    folder: KeysFolder,
    site: Annotated[str, typer.Option("--site", help="The new site's name.")],
    public: PublicFile = None,
) -> None:
    """Take a new site into a federation, or one whose key was revoked."""
    require_flower()
    from vitrail.flower.key_roll import add_site
    from vitrail.flower.keys import Keys

    _say(add_site(Keys(folder), site, public))


@keys_app.command("rotate")
def keys_rotate(
    folder: KeysFolder,
    site: Annotated[str | None, typer.Option("--site", help="The site to give a new key.")] = None,
    public: PublicFile = None,
    server: Annotated[
        bool, typer.Option("--server", help="Make the coordinator's certificate anew.")
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="With --server: its names, if others than before."),
    ] = None,
    days: Annotated[int, typer.Option(help="With --server: how long it is valid.")] = 365,
) -> None:
    """Replace a site's key, or the coordinator's certificate; the old one is kept aside."""
    require_flower()
    from vitrail.flower.key_roll import rotate_site
    from vitrail.flower.keys import Keys
    from vitrail.flower.renew_certificate import rotate_server

    if server is (site is not None):
        raise ConfigError("give either --site or --server", where="vitrail flower keys rotate")
    if site is None:
        if public is not None:
            raise ConfigError("the coordinator's key is made here", where="--public")
        _say(rotate_server(Keys(folder), host or (), days))
        return
    if host:
        raise ConfigError("a site's key has no host names", where="--host")
    _say(rotate_site(Keys(folder), site, public))


@keys_app.command("revoke")
def keys_revoke(
    folder: KeysFolder,
    site: Annotated[str, typer.Option("--site", help="The site to refuse from now on.")],
) -> None:
    """End a site's key: a running server refuses it from the next round on."""
    require_flower()
    from vitrail.flower.key_roll import revoke_site
    from vitrail.flower.keys import Keys

    _say(revoke_site(Keys(folder), site))


@keys_app.command("list")
def keys_list(folder: KeysFolder) -> None:
    """Show every site's key: name, fingerprint, since when, and whether it was revoked."""
    require_flower()
    from vitrail.flower.key_roll import list_keys
    from vitrail.flower.keys import Keys

    for key in list_keys(Keys(folder)):
        state = f"revoked {key.revoked}" if key.revoked else f"since {key.since or 'the start'}"
        typer.echo(f"{key.site}  {key.fingerprint}  {state}")


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)


def _parse_named_file(word: str) -> tuple[str, Path]:
    name, _, file = word.partition("=")
    if not name or not file:
        raise ConfigError(f"{word!r} is not NAME=FILE", where="--public")
    return name, Path(file)
