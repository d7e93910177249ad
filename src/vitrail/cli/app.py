"""The root of the command line: it lists every command and imports the one that is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from vitrail import __version__

# Each command and the first line of its help, in the order of `vitrail --help`. It stands here so
# that a list of commands costs no import; `tests/cli/test_listing.py` compares the two.
COMMANDS = {
    "run": "Train a federation; writes a run folder.",
    "resume": "Go on after a stop or a crash; the result is the same, to the bit.",
    "extend": "More rounds for a finished run, in a new folder.",
    "withdraw": "Train again without a site that withdraws, in a new folder.",
    "methods": "List the methods, one line each, with the paper.",
    "init": "Check your images and write a commented TOML file that runs as it is.",
    "predict": "Write class probabilities of new images to a CSV file.",
    "evaluate": "Measure a model on new images: AUROC, calibration, confusion, intervals by "
    "patient.",
    "export": "Write a model and its card, to be used without the run folder.",
    "new-method": "Write a method, or something else that plugs in, its test and a file that runs "
    "it.",
    "sweep": "Run a grid; skips what is finished, resumes what was interrupted, ends in compare.",
    "tune": "Choose each row's settings on images that are never tested; goes on where it stopped.",
    "compare": "Methods side by side over seeds: mean, SD, test, Holm correction, effect size.",
    "reproduce": "Make a results table again: the same grid, the same command as in the docs.",
    "explain": "Show the parts a prediction rests on, in numbers that add up to the logit.",
    "audit": "Find out which site taught the model something it should not know.",
    "budget": "Show what all runs have spent on a site's images, on which, and what a planned run "
    "costs.",
    "ledger": "Show what left each site: how much, by which mechanism, under which guarantee.",
    "fidelity": "Compare the explanations of runs with those of a run without a defense, image by "
    "image.",
    "attack": "Try to get the sites' images back from exactly what they released.",
    "leakage": "Train behind each defense, attack the same images behind each, and put it side by "
    "side.",
    "serve": "Ask a model, watch runs, audit and decide, in a browser on this machine.",
    "report": "Tell what happened: one file that opens anywhere and loads nothing.",
    "personalize": "Tune the head at one site; the global model stays as it was.",
    "preview": "Show original, heatmap, mask and shared image of each site. Nothing leaves any "
    "site.",
    "verify": "Check that an exported model is that of a run: file, configuration, ledgers, "
    "numbers.",
    "dossier": "Write a page for a data-protection officer: what was processed, what left, what is "
    "proved.",
    "forget": "Delete run folders or the cache, and say what remains elsewhere.",
    "doctor": "Say what is installed, which extras work, and what the machine has. Sends nothing.",
    "config": "Configuration files.",
    "data": "Look at images before anything is trained.",
    "flower": "Real federations on Flower: keys, server, site, terms, policy, check, status.",
}


def load_command(name: str) -> click.Command:
    """The command itself: what the module of its name calls by that name, imported now."""
    word = name.replace("-", "_")
    item = getattr(import_module(f"vitrail.cli.{word}"), word)
    if isinstance(item, typer.Typer):
        group = get_group(item)
        group.name = name
        return group
    single = typer.Typer(add_completion=False)
    single.command(name)(item)
    return get_command(single)


class LazyGroup(TyperGroup):
    """A group whose members are lines of help until one of them is called."""

    def __init__(self, **settings: Any) -> None:
        lines = {name: click.Command(name, help=line) for name, line in COMMANDS.items()}
        super().__init__(**{**settings, "commands": lines})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name, imported, and the words after it."""
        name, line, rest = super().resolve_command(ctx, args)
        return name, None if line is None or name is None else load_command(name), rest


app = typer.Typer(
    name="vitrail",
    cls=LazyGroup,
    help="Federated learning for images that people can see through, and strangers cannot.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vitrail {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Federated learning for images that people can see through, and strangers cannot."""
    del version
