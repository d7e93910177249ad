"""The coordinator of a real federation: the engine, with members at the other end of a link."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path

from vitrail.config import Loaded
from vitrail.engine.bench import make_bench
from vitrail.engine.folder import RunFolder
from vitrail.engine.run import Engine, OnRound, check_network, check_together, held
from vitrail.engine.settle import settled
from vitrail.errors import ConfigError
from vitrail.files import write_json
from vitrail.flower.agreement import agreed_plan, terms_of
from vitrail.flower.link import Link
from vitrail.flower.remote import Remote

_NAME = "flower.json"


def coordinate(
    link: Link,
    loaded: Loaded,
    out: str | Path,
    sites: int,
    timeout: float = 600.0,
    patience: float = 600.0,
    on_round: OnRound | None = None,
) -> RunFolder:
    """Start a federation in a new folder, or go on with the one that is there, to its end."""
    folder = RunFolder(out)
    fresh = not folder.config_file.exists()
    if fresh:
        try:
            loaded = replace(loaded, config=settled(loaded))
            terms_of(loaded.config)
        except ConfigError as err:
            raise err.in_file(loaded.source) from None
    else:
        loaded = folder.open()
    plan, network = agreed_plan(loaded)
    if plan.secure:
        check_together(plan, sites)
    size = int(loaded.config.data.image_size or 0)
    try:
        if size:
            check_network(plan, network, size)
        bench = make_bench(plan, network, size)
    except ConfigError as err:
        raise err.in_file(loaded.source) from None
    if fresh:
        folder.create(loaded.config)
    with held(folder):
        folder.sweep_up()
        left_out = plan.config.debias.left_out
        members = Remote(link, _run(folder), sites, timeout, patience, left_out=left_out)
        if not (folder.server / "finished").exists():
            Engine(folder, plan, network, members, on_round, bench).run(fresh=fresh)
        members.part(folder)
    return folder


def _run(folder: RunFolder) -> str:
    """What the sites know this run by, made once."""
    file = folder.server / _NAME
    if not file.exists():
        write_json(file, {"run": secrets.token_hex(8)})
    return str(json.loads(file.read_text(encoding="utf-8"))["run"])
