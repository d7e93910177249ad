"""`vitrail flower ...`: real federations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.flower_keys import keys_app, require_flower
from vitrail.cli.flower_terms import policy_app, terms_app
from vitrail.errors import ConfigError

flower = typer.Typer(
    name="flower",
    help="Real federations on Flower: keys, server, site, terms, policy, check, status.",
    no_args_is_help=True,
)
flower.add_typer(keys_app, name="keys")
flower.add_typer(terms_app, name="terms")
flower.add_typer(policy_app, name="policy")

Insecure = Annotated[
    bool, typer.Option("--insecure", help="No TLS and no authentication; for tests on one machine.")
]
LogFormatWord = Annotated[
    str,
    typer.Option(
        "--log-format", metavar="text|json", help="Sentences or JSON lines, printed and in log.txt."
    ),
]
_WARNING = "INSECURE: no encryption, no authentication. Never use this with real images."


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
    signature: Annotated[
        list[Path] | None,
        typer.Option(help="A file of `flower terms sign`; once for each signature."),
    ] = None,
    log_format: LogFormatWord = "text",
    insecure: Insecure = False,
) -> None:
    """Coordinate a federation: start it, or go on after a stop."""
    require_flower()
    from vitrail.flower.coordinator.server_command import ServerSettings, run_server
    from vitrail.flower.events import EventTeller, parse_log_format
    from vitrail.flower.keys import Keys

    _check_security(keys, insecure)
    server = ServerSettings(host, port, None if keys is None else Keys(keys))
    teller = EventTeller(typer.echo, parse_log_format(log_format))
    run_server(file, out, server, teller, sites, timeout, patience, signature or [])


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
    require_flower()
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
    require_flower()
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
