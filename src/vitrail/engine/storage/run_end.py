"""Whose end of a federation a run folder is: all of a simulation, a coordinator's, or a site's."""

from __future__ import annotations

from typing import Literal

from vitrail.config import Config
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import RunError

RunEnd = Literal["simulation", "coordinator", "site"]
RUN_ID_FILE = "flower.json"
"""In the server's folder of a coordinator: what the sites know the run by."""


def find_run_end(folder: RunFolder, config: Config) -> RunEnd:
    """A coordinator's folder names its run to remote sites; a site's has one partial partition."""
    if (folder.server / RUN_ID_FILE).exists():
        return "coordinator"
    if config.partition.kind == "one" and config.data.partial:
        return "site"
    return "simulation"


def describe_continuation(end: RunEnd) -> str:
    """The command that goes on with an unfinished run."""
    return {
        "simulation": "`vitrail resume` it.",
        "coordinator": "`vitrail flower server` with the same --out goes on with it.",
        "site": "It goes on when the coordinator asks: start `vitrail flower site`.",
    }[end]


def refuse_remote(folder: RunFolder, config: Config) -> None:
    """Refuse to play a run whose sites are not on this machine as if they were."""
    end = find_run_end(folder, config)
    if end == "simulation":
        return
    whose = "a coordinator's end" if end == "coordinator" else "one site's end"
    raise RunError(
        f"this folder is {whose} of a real federation, which cannot go on alone",
        where=str(folder.path),
        hint=describe_continuation(end),
    )
