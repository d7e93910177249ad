"""`[limits]` of a site's file: what a federation may use of this machine. The site's own word."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from pydantic import Field, field_validator

from vitrail.config.section import Section
from vitrail.flower.folder_facts import measure_folder


class SiteLimits(Section):
    """What may be used at this site; what is left out is not limited."""

    cores: int | None = Field(default=None, ge=1)
    """Processor cores that the resident process may run on."""
    memory_gib: float | None = Field(default=None, gt=0)
    """Memory of the resident process, in GiB."""
    disk_gib: float | None = Field(default=None, gt=0)
    """Disk space that the site's folder may fill, in GiB."""
    hours: str | None = None
    """The hours in which turns are played, such as "20:00-06:00", by this machine's clock."""

    @field_validator("hours")
    @classmethod
    def _check_hours(cls, hours: str | None) -> str | None:
        if hours is not None:
            _parse_hours(hours)
        return hours

    def find_problem(self, folder: Path, now: time.struct_time | None = None) -> str | None:
        """Why no turn can be played now, or None."""
        if self.hours is not None and not _is_inside(self.hours, now or time.localtime()):
            return f"this site plays turns from {self.hours.replace('-', ' to ')} only"
        if self.disk_gib is not None and measure_folder(folder) > self.disk_gib * 2**30:
            return f"this site's folder has reached its limit of {self.disk_gib:g} GiB"
        if folder.exists() and shutil.disk_usage(folder).free < 2**26:
            return "this site's disk is full"
        return None


def _parse_hours(hours: str) -> tuple[int, int]:
    """Minutes of the day at which a span begins and ends."""
    try:
        first, last = (time.strptime(part.strip(), "%H:%M") for part in hours.split("-"))
    except ValueError as err:
        raise ValueError('hours are written as "20:00-06:00"') from err
    return first.tm_hour * 60 + first.tm_min, last.tm_hour * 60 + last.tm_min


def _is_inside(hours: str, now: time.struct_time) -> bool:
    first, last = _parse_hours(hours)
    minute = now.tm_hour * 60 + now.tm_min
    return first <= minute < last if first <= last else minute >= first or minute < last
