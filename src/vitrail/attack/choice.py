"""What of a run is attacked: how many images, of which sites, in which round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.attack.threat_model import Sees
from vitrail.engine.storage.transcript import Recording
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation


@dataclass(frozen=True)
class Choice:
    """What to attack: how many images in all, of which sites, in which round, seen how."""

    images: int | None = None
    sites: tuple[str, ...] = ()
    round: int | None = None
    sees: Sees = "update"


def choose_whole_round(run: Run, sites: Sequence[str] = ()) -> Choice:
    """Every training image of some sites (none named: all) in the last recorded round."""
    federation, names = load_run_federation(run), tuple(sites) or run.sites
    total = sum(len(federation.sites[name].train) for name in names)
    return Choice(total, tuple(sites), Recording(run.folder.server).rounds()[-1])
