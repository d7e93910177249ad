"""The commands that use a model or start a project; each lives in a module of its own."""

from __future__ import annotations

import typer

from vitrail.cli import data, evaluate, export, init, new_method, predict


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("init")(init.init)
    app.add_typer(data.app, name="data")
    app.command("predict")(predict.predict)
    app.command("evaluate")(evaluate.evaluate)
    app.command("export")(export.export)
    app.command("new-method")(new_method.new_method)
