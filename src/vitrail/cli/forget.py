"""`vitrail forget`: delete a run folder, or the cache, and say what remains."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import print_note
from vitrail.data.shared_memory import get_cache_path
from vitrail.engine.release_summary import format_size
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import ConfigError


def forget(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN ...]", help="Run folders to delete.")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="Delete the cache of images and features.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; left out: only say what.")] = False,
) -> None:
    """Delete run folders or the cache, and say what remains elsewhere."""
    paths = list(runs or ())
    if not paths and not cache:
        raise ConfigError("nothing is named", where="forget", hint="Name a run, or add --cache.")
    folders = [RunFolder(path) for path in paths]
    for folder in folders:
        folder.open()  # refuses what is no run folder, before anything is deleted
    targets = [folder.path for folder in folders]
    if cache and get_cache_path().exists():
        targets.append(get_cache_path())
    for folder in folders:
        if yes:
            folder.lock()  # nobody works in it
            folder.unlock()
    for target in targets:
        size = sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
        typer.echo(f"{'deleted' if yes else 'would delete'} {target} ({format_size(size)})")
        if yes:
            shutil.rmtree(target)
    if not yes:
        print_note("nothing was deleted: add --yes")
    print_note(
        "what remains: your images, exported models, reports that were handed on, backups, and, of "
        "a real federation, what coordinator and other sites keep. Deleted files may be "
        "recoverable from the disk."
    )
