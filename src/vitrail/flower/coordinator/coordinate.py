"""The coordinator of a real federation: the engine, with members at the other end of a link."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vitrail.config import Loaded
from vitrail.engine.run import (
    Engine,
    OnRound,
    check_before_start,
    check_secure_sum_sites,
    lock_folder,
)
from vitrail.engine.server_training import make_server_trainer
from vitrail.engine.storage.run_end import RUN_ID_FILE
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import ConfigError
from vitrail.files import write_json
from vitrail.flower.coordinator.attendance import Attendance
from vitrail.flower.coordinator.remote_sites import RemoteSites, compute_reply_limit
from vitrail.flower.events import EVENTS_FILE, EventTeller
from vitrail.flower.keys import Keys
from vitrail.flower.link import Link
from vitrail.flower.run_terms import make_agreed_plan, resolve_terms
from vitrail.log_file import begin_log
from vitrail.methods.base.method import RunSetup


def run_federation(
    link: Link,
    loaded: Loaded,
    out: str | Path,
    sites: int,
    timeout: float = 600.0,
    patience: float = 600.0,
    on_round: OnRound | None = None,
    signatures: Mapping[str, str] | None = None,
    keys: Keys | None = None,
    teller: EventTeller | None = None,
    names: Sequence[str] = (),
    limit_replies: Callable[[int], None] | None = None,
) -> RunFolder:
    """Start a federation in a new folder, or go on with the one that is there, to its end.

    `teller` hears what goes on; `names` are the sites that may come, where keys name them;
    `limit_replies` hears how large a reply of this run may be.
    """
    folder = RunFolder(out)
    fresh = not folder.config_file.exists()
    loaded = resolve_terms(loaded) if fresh else folder.open()
    plan, network = make_agreed_plan(loaded)
    if limit_replies is not None:
        limit_replies(compute_reply_limit(plan))
    if plan.secure:
        check_secure_sum_sites(plan, sites)
    size = int(loaded.config.data.image_size or 0)
    try:
        trainer = make_server_trainer(plan, network, size)
        image = plan.image_shape(size) if size else None
        check_before_start(plan, RunSetup(plan.optimizer, network, image, trainer=trainer))
    except ConfigError as err:
        raise err.in_file(loaded.source) from None
    if fresh:
        folder.create(loaded.config)
        begin_log(folder.log_file, teller is not None and teller.form == "json")
    with lock_folder(folder):
        folder.sweep_up()
        left_out = plan.config.debias.left_out
        run = _load_run_id(folder)
        folder.log(f"the coordinator of run {run} was started")
        if teller is not None:
            teller.keep(folder.server / EVENTS_FILE, run)
        attendance = Attendance(teller, folder.log, tuple(names))
        members = RemoteSites(
            link,
            run,
            sites,
            timeout,
            patience,
            left_out=left_out,
            signatures=dict(signatures or {}),
            node_keys=keys,
            attendance=attendance,
        )
        if not (folder.server / "finished").exists():
            Engine(folder, plan, network, members, on_round, trainer).run(fresh=fresh)
        members.send_farewell(folder)
    return folder


def _load_run_id(folder: RunFolder) -> str:
    """What the sites know this run by, made once."""
    file = folder.server / RUN_ID_FILE
    if not file.exists():
        write_json(file, {"run": secrets.token_hex(8)})
    return str(json.loads(file.read_text(encoding="utf-8"))["run"])
