"""`vitrail flower ...`: real federations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vitrail.errors import ConfigError, RunError
from vitrail.flower.ports import INSTALL

flower = typer.Typer(
    name="flower",
    help="Real federations on Flower: keys, server, site, check, status.",
    no_args_is_help=True,
)
keys_app = typer.Typer(help="Certificates and keys.", no_args_is_help=True)
flower.add_typer(keys_app, name="keys")

Insecure = Annotated[
    bool, typer.Option("--insecure", help="No TLS and no authentication; for tests on one machine.")
]
LogFormatWord = Annotated[
    str,
    typer.Option("--log-format", metavar="text|json", help="Sentences, or a JSON event a line."),
]
_WARNING = "INSECURE: no encryption, no authentication. Never use this with real images."


def _require_flower() -> None:
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
    _require_flower()
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
    _require_flower()
    from vitrail.flower.node_key import fingerprint_key, make_node_key, read_public

    public = make_node_key(folder)
    typer.echo(f"send to the coordinator: {public}")
    typer.echo(f"to be compared by another way: {fingerprint_key(read_public(public))}")
    typer.echo(f"what comes back (ca.pem, peers) belongs into {folder}")


def _parse_named_file(word: str) -> tuple[str, Path]:
    name, _, file = word.partition("=")
    if not name or not file:
        raise ConfigError(f"{word!r} is not NAME=FILE", where="--public")
    return name, Path(file)


@flower.command("server")
def server_command(
    file: Annotated[Path, typer.Argument(help="The federation's TOML file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder; if there, go on.")],
    keys: Annotated[Path | None, typer.Option(help="The folder of `keys init`.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8000,
    sites: Annotated[
        int | None, typer.Option(help="Wait for so many sites; left out: all that have keys.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds a site may take for a turn.")] = 600.0,
    patience: Annotated[float, typer.Option(help="Seconds to wait for sites and answers.")] = 600.0,
    log_format: LogFormatWord = "text",
    insecure: Insecure = False,
) -> None:
    """Coordinate a federation: start it, or go on after a stop."""
    _require_flower()
    from vitrail.flower.coordinator.server_command import ServerSettings, run_server
    from vitrail.flower.events import EventTeller, parse_log_format
    from vitrail.flower.keys import Keys

    _check_security(keys, insecure)
    server = ServerSettings(host, port, None if keys is None else Keys(keys))
    teller = EventTeller(typer.echo, parse_log_format(log_format))
    run_server(file, out, server, teller, sites, timeout, patience)


@flower.command("site")
def site_command(
    server: Annotated[str, typer.Option(help="The coordinator, as host:port.")],
    file: Annotated[Path | None, typer.Option(help="The site's own TOML file.")] = None,
    data: Annotated[Path | None, typer.Option(help="Images, if there is no file yet.")] = None,
    name: Annotated[str | None, typer.Option(help="The site's name, with --data.")] = None,
    keys: Annotated[Path | None, typer.Option(help="The folder the coordinator gave.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree to every run unasked.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="End after one run; declined is an error.")
    ] = False,
    log_format: LogFormatWord = "text",
    insecure: Insecure = False,
    seeded: Annotated[bool, typer.Option("--seeded", hidden=True)] = False,
) -> None:
    """Take part in a federation with this machine's images."""
    _require_flower()
    from vitrail.flower.events import parse_log_format
    from vitrail.flower.site.site_command import SiteConnection, run_site
    from vitrail.flower.site.site_config import SiteConfig

    _check_security(keys, insecure)
    home = SiteConfig.open(_prepare_site_file(file, data, name))
    node = SiteConnection(home, server, keys, seeded)
    agree = (lambda _: True) if yes else typer.confirm
    run_site(node, typer.echo, agree, once, parse_log_format(log_format))


@flower.command("check")
def check_command(
    server: Annotated[str | None, typer.Option(help="The coordinator, as host:port.")] = None,
    file: Annotated[Path | None, typer.Option(help="The site's own TOML file.")] = None,
    federation: Annotated[Path | None, typer.Option(help="The federation's TOML file.")] = None,
    keys: Annotated[Path | None, typer.Option(help="A folder of keys, of either side.")] = None,
) -> None:
    """Test keys, ports, clock, disk, images and class names; nothing is trained or sent."""
    _require_flower()
    from vitrail.flower.preflight import examine

    findings = examine(server, file, federation, keys)
    for line in findings:
        typer.echo(f"{'ok   ' if line.good else 'WRONG'} {line.what}: {line.says}")
    if not all(line.good for line in findings):
        raise typer.Exit(1)


@flower.command("status")
def status_command(
    path: Annotated[
        Path, typer.Argument(help="A coordinator's run folder, or a site's file or folder.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell how a federation stands at this end, from its files; no port is opened."""
    from vitrail.flower.status import read_status

    status = read_status(path)
    if as_json:
        typer.echo(json.dumps(status.to_json(), indent=1))
        return
    for line in status.lines():
        typer.echo(line)


def _check_security(keys: Path | None, insecure: bool) -> None:
    if insecure and keys is None:
        typer.echo(_WARNING, err=True)
    elif keys is None:
        raise ConfigError(
            "a federation needs keys",
            where="--keys",
            hint="`vitrail flower keys init` makes them; --insecure does without, for tests.",
        )
    elif insecure:
        raise ConfigError("--keys and --insecure contradict each other", where="--insecure")


def _prepare_site_file(file: Path | None, data: Path | None, name: str | None) -> Path:
    """The site's file, written first where only images and a name are given."""
    if (file is None) == (data is None):
        raise ConfigError("give either --file or --data with --name", where="vitrail flower site")
    if file is not None:
        return file
    assert data is not None
    if not name:
        raise ConfigError("a site needs a name", where="--name")
    from vitrail.flower.site.site_config import write_site

    return write_site(Path(f"{name}.site.toml"), name, data)
