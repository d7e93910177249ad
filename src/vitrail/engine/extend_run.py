"""More rounds for a finished run, in a new folder; the old one stays as it is."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import tomli_w

from vitrail.config import Loaded, to_stored_tree
from vitrail.engine.plan import Plan, make_plan
from vitrail.engine.resolve_config import fingerprint_config
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.storage.run_end import refuse_remote
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors, write_tensors, write_text
from vitrail.release.ledger import CONTINUE, Ledger

_KEPT = ("metrics.jsonl", "log.txt", "partition.json")
_PASSED = ("finished",)  # of the old end, in the server's folder


def extend_folder(old: str | Path, out: str | Path, rounds: int) -> RunFolder:
    """Copy a finished run to a new folder that goes on for some rounds; `resume` then plays them.

    The end is that of a run that was asked for all rounds at once, to the bit. A run for which that
    cannot be (its stages, its learning rates or its noise depend on how many rounds there are) is
    refused.
    """
    source, target = RunFolder(old), RunFolder(out)
    loaded = source.open()
    refuse_remote(source, loaded.config)
    _check_can_go_on(source, loaded, rounds)
    target.check_free()
    longer = _lengthen(loaded, rounds)
    last = loaded.config.run.rounds
    _copy(source, target)
    write_text(target.config_file, tomli_w.dumps(to_stored_tree(longer.config)))
    _open_checkpoint(target, longer, last)
    for path in sorted(target.sites.iterdir()):
        _reopen_site(path, last)
    target.log(f"goes on after round {last} of {source.path.name}, to round {last + rounds}")
    return target


def _check_can_go_on(source: RunFolder, loaded: Loaded, rounds: int) -> None:
    if rounds < 1:
        raise ConfigError("a run goes on for at least 1 round", where="--rounds")
    if not (source.server / "finished").exists():
        raise RunError(
            "this run is not finished",
            where=str(source.path),
            hint="`vitrail resume` it first.",
        )
    card = json.loads((source.server / "card.json").read_text(encoding="utf-8"))
    classes, channels = tuple(card["classes"]), int(card["channels"])
    before, _ = make_plan(loaded, classes, channels)
    if before.private:
        raise RunError(
            "the noise of this run was set for its own number of rounds, and its guarantee with it",
            where=str(source.path),
            hint="Start a new run with more rounds, or one from its model: model.start.",
        )
    after, _ = make_plan(_lengthen(loaded, rounds), classes, channels)
    for number in range(1, loaded.config.run.rounds + 1):
        if not _plays_alike(before, after, number):
            raise RunError(
                f"round {number} would have been another one in a longer run",
                where=str(source.path),
                hint="Its stages or learning rates depend on run.rounds: start a run from its "
                "model instead (model.start).",
            )


def _plays_alike(before: Plan, after: Plan, round_: int) -> bool:
    """Whether a round is the same in two plans of one run."""
    one, other = before.stage_at(round_), after.stage_at(round_)
    rates = (plan.context(round_, 1).optimizer for plan in (before, after))
    same_stage = one.stage == other.stage and one.answers == other.answers
    return same_stage and next(rates) == next(rates)


def _lengthen(loaded: Loaded, rounds: int) -> Loaded:
    """The same run with more rounds."""
    run = loaded.config.run
    longer = run.model_copy(update={"rounds": run.rounds + rounds})
    config = loaded.config.model_copy(update={"run": longer})
    config.mark_stored(loaded.config.absent)
    return replace(loaded, config=config)


def _copy(source: RunFolder, target: RunFolder) -> None:
    target.path.mkdir(parents=True, exist_ok=True)
    for name in _KEPT:
        if (source.path / name).exists():
            shutil.copy2(source.path / name, target.path / name)
    shutil.copytree(
        source.server,
        target.server,
        ignore=shutil.ignore_patterns(*_PASSED, "*.tmp"),
        dirs_exist_ok=True,
    )
    shutil.copytree(
        source.sites, target.sites, ignore=shutil.ignore_patterns("*.tmp"), dirs_exist_ok=True
    )


def _open_checkpoint(target: RunFolder, longer: Loaded, last: int) -> None:
    """Leave the last checkpoint alone, under the new configuration."""
    checkpoints = Checkpoints(target.server)
    tensors, meta = read_tensors(checkpoints.path(last))
    write_tensors(
        checkpoints.path(last), tensors, {**meta, "config": fingerprint_config(longer.config)}
    )
    for number in checkpoints.rounds():
        if number != last:
            checkpoints.path(number).unlink()


def _reopen_site(folder: Path, last: int) -> None:
    """Forget the models that the old end made, and say in the ledger that a new one comes."""
    for kind in ("personal", "local"):
        (folder / f"{kind}.safetensors").unlink(missing_ok=True)
    if (folder / "ledger.jsonl").exists():
        Ledger(folder / "ledger.jsonl").write({"kind": CONTINUE, "after": last})
