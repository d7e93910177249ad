"""`vitrail serve`: ask a model, watch runs and decide, in a browser on this machine."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import print_note
from vitrail.errors import ConfigError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN|FOLDER|FILE.toml] ...",
            help="Else `runs`; a TOML file is a planned run, or a site's own file.",
        ),
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look as this site: its images, its models.")
    ] = None,
    terms: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Terms that a site was given as a file.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    host: Annotated[
        str, typer.Option(help="Another interface needs TLS and a password.")
    ] = "127.0.0.1",
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key in PEM.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Keep the token here, so that open pages survive a restart."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
) -> None:
    """Ask a model, watch runs, audit and decide, in a browser on this machine."""
    try:
        import uvicorn

        from vitrail.live.application import make_application
    except ImportError as err:
        raise ConfigError(
            "the live application needs starlette and uvicorn",
            hint="Install them with `pip install 'vitrail[live]'`.",
        ) from err
    from vitrail.live.catalog import Catalog
    from vitrail.live.guard import Access

    password = _choose_password(host, tls_cert, tls_key)
    catalog = Catalog(runs or [Path("runs")], site, terms)
    handle = _listen(host, port)
    access = Access(host, handle.getsockname()[1], password=password, tls=tls_cert is not None)
    if token_file is not None:
        access.token = _keep_token(token_file)
    print_note(f"open  {access.link}\nCtrl-C ends it; runs go on without it")
    if browser and sys.stdout.isatty():
        webbrowser.open(access.link)
    config = uvicorn.Config(
        make_application(catalog, access),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        ssl_certfile=None if tls_cert is None else str(tls_cert),
        ssl_keyfile=None if tls_key is None else str(tls_key),
    )
    uvicorn.Server(config).run(sockets=[handle])


def _choose_password(host: str, cert: Path | None, key: Path | None) -> str | None:
    """None on loopback; elsewhere TLS and a password are asked for."""
    if host in _LOOPBACK:
        return None
    if cert is None or key is None:
        raise ConfigError(
            f"{host} can be reached by others, and what is sent could be read on its way",
            where="--host",
            hint="Add --tls-cert and --tls-key, or leave --host out.",
        )
    password = os.environ.get("VITRAIL_PASSWORD") or typer.prompt("Password", hide_input=True)
    if len(password) < 12:
        raise ConfigError("this password has fewer than 12 letters", where="VITRAIL_PASSWORD")
    return str(password)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    handle = socket.socket(family, socket.SOCK_STREAM)
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        handle.bind((host, port))
    except OSError as err:
        handle.close()
        raise ConfigError(
            f"port {port} of {host} cannot be used ({err.strerror})",
            where="--port",
            hint="--port 0 takes a free one.",
        ) from None
    handle.listen(128)
    return handle


def _keep_token(file: Path) -> str:
    """The token of a file that only its owner may read; made if it is not there."""
    from vitrail.files import load_or_create_secret

    return load_or_create_secret(file, "the token of the live application").hex()
