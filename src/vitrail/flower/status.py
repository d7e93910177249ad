"""`vitrail flower status`: how an end of a real federation stands, from its files alone."""

from __future__ import annotations

from pathlib import Path

from vitrail.engine.storage.run_end import find_run_end
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import RunError
from vitrail.flower.coordinator.run_status import CoordinatorStatus, read_coordinator_status
from vitrail.flower.events import EVENTS_FILE
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_status import SiteStatus, read_site_status

Status = CoordinatorStatus | SiteStatus
_SITE_MARKS = ("runs", "terms", "lock", EVENTS_FILE)


def read_status(path: Path) -> Status:
    """Of a coordinator's run folder, a site's file, a site's folder, or its folder of a run."""
    if path.is_file():
        config = SiteConfig.open(path)
        return read_site_status(config.folder, config.name)
    folder = RunFolder(path)
    if folder.config_file.is_file():
        end = find_run_end(folder, folder.open().config)
        if end == "coordinator":
            return read_coordinator_status(folder)
        if end == "site":
            return read_site_status(path.resolve().parent.parent)
        raise RunError(
            "this run is a simulation: it has no sites that come and go",
            where=str(path),
            hint="`vitrail report` tells what happened in it.",
        )
    if any((path / mark).exists() for mark in _SITE_MARKS):
        return read_site_status(path)
    raise RunError(
        "this is neither a coordinator's run folder nor a site's file or folder",
        where=str(path),
        hint="Give the --out of `vitrail flower server`, or a site's TOML file.",
    )
