"""A site withdraws: the run again without it, from the last state that did not know it.

In a simulation every site takes part from the first round on, so that state is the start, and what
comes out is the model that was never trained on the site's images.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from vitrail.engine.run import OnRound, start
from vitrail.engine.storage.run_end import refuse_remote
from vitrail.engine.storage.run_folder import RunFolder, find_free_folder
from vitrail.errors import RunError, suggest_name
from vitrail.files import write_json

COST_FILE = "withdrawal.json"


def withdraw_site(run: Path, site: str, out: Path | None, on_round: OnRound | None = None) -> Path:
    """Play a run again without a site; the others' images, draws and budget are as they were."""
    source = RunFolder(run)
    loaded = source.open()
    refuse_remote(source, loaded.config)
    card = json.loads((source.server / "card.json").read_text(encoding="utf-8"))
    if site not in card["sites"]:
        raise RunError(
            f"there is no site {site!r} in this run", hint=suggest_name(site, card["sites"])
        )
    if len(card["sites"]) == 1:
        raise RunError(
            "this run has no other site", where=str(run), hint="`vitrail forget` its folder."
        )
    partition = loaded.config.partition
    without = partition.model_copy(update={"without": (*partition.without, site)})
    config = loaded.config.model_copy(update={"partition": without})
    config.mark_stored(key for key in loaded.config.absent if key != ("partition", "without"))
    folder = out or find_free_folder(run.parent, f"{run.name}-without-{site}")
    start(replace(loaded, config=config), folder, on_round)
    write_json(folder / COST_FILE, _count_cost(source, RunFolder(folder), site))
    return folder


def _count_cost(old: RunFolder, new: RunFolder, site: str) -> dict[str, object]:
    """What was done again, and what remains of the site elsewhere."""
    rows = [row for row in new.rows() if row["site"] != "*"]
    return {
        "site": site,
        "without": new.path.name,
        "again_from_round": 0,
        "rounds": max((int(row["round"]) for row in rows), default=0),
        "image_steps": sum(float(row.get("image_steps") or 0) for row in rows),
        "bytes_up": sum(float(row.get("bytes_up") or 0) for row in rows),
        "seconds": sum(float(row.get("seconds") or 0) for row in rows),
        "remains": f"the folder {old.path.name} and every copy of its models still hold what the "
        "site taught; `vitrail forget` deletes the folder",
    }
