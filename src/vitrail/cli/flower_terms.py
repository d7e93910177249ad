"""`vitrail flower terms ...` and `vitrail flower policy ...`: what is proposed, signed, allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

terms_app = typer.Typer(help="The terms of a run as a file, and signatures under them.")
policy_app = typer.Typer(help="A site's own rules for terms.")

TermsFile = Annotated[
    Path, typer.Argument(metavar="TERMS", help="A file of terms, or a TOML file.")
]


@terms_app.command("write")
def write_command(
    federation: Annotated[Path, typer.Argument(help="The federation's TOML file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file of terms to write.")],
) -> None:
    """Write the terms that sites will be asked to agree to."""
    from vitrail.flower.terms_digest import digest_terms
    from vitrail.flower.terms_file import write_terms

    terms = write_terms(federation, out)
    typer.echo(f"wrote {out}; digest {digest_terms(terms)}")


@terms_app.command("sign")
def sign_command(
    terms: TermsFile,
    key: Annotated[Path, typer.Option(help="The private key, as `keys site` makes one.")],
    name: Annotated[str, typer.Option(help="The name that sites know the public key by.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
) -> None:
    """Sign terms; the coordinator shows the signature to every site."""
    from vitrail.flower.terms_file import read_terms
    from vitrail.flower.terms_signature import sign_terms

    signature = sign_terms(read_terms(terms), name, key)
    signature.write(out)
    typer.echo(f"{name} signs the terms of digest {signature.digest}: {out}")


@policy_app.command("check")
def check_command(
    terms: TermsFile,
    file: Annotated[Path, typer.Option(help="The site's own TOML file.")],
    keys: Annotated[Path | None, typer.Option(help="The site's folder of keys.")] = None,
    signature: Annotated[
        list[Path] | None, typer.Option(help="A file of `terms sign`; once for each.")
    ] = None,
) -> None:
    """Say which lines of a site's policy some terms break; nothing is sent."""
    from vitrail.flower.site.policy_check import check_terms

    breaches, kept = check_terms(terms, file, keys, signature or [])
    for line in kept:
        typer.echo(f"ok     {line}")
    for breach in breaches:
        typer.echo(f"BREAKS policy.{breach.line}: {breach.says}")
    if breaches:
        raise typer.Exit(1)
    typer.echo("these terms keep to the policy; the operator is still asked")
