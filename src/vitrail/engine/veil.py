"""Secure sums at a site: the cover of a turn, the key for the next one, the update held back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vitrail.aggregate.guard import Guard
from vitrail.aggregate.masked import lifted
from vitrail.engine.plan import Plan
from vitrail.engine.tasks import Down, Reply, Task
from vitrail.errors import RunError
from vitrail.files import read_tensors, write_tensors
from vitrail.release.cover import Cover, Withheld, announced
from vitrail.release.door import Door
from vitrail.release.pact import PublicKey, Vouch
from vitrail.release.update import Update
from vitrail.rng import Key


def veiled(plan: Plan, task: Task) -> bool:
    """Whether a turn's update leaves under masks; a message cannot ask for it without them."""
    secure = plan.stage_at(task.round).masked is not None and not task.closing
    if secure is not (task.pact is not None):
        wrong = "without masks" if secure else "under masks"
        raise RunError(
            f"the message of round {task.round} asks for an update {wrong}, against the terms "
            "of the run"
        )
    return secure


@dataclass(frozen=True)
class Veil:
    """What stands between the server and a site's update in one turn.

    The update itself stays in the site's folder until the next round, so that a repeated attempt
    costs new masks and no new training, and tells nothing new.
    """

    plan: Plan
    task: Task
    down: Down
    secret: Key
    folder: Path
    run: str = ""
    vouch: Vouch | None = None

    @cached_property
    def cover(self) -> Cover:
        """The masks of this attempt. The site checks itself with the guard that the server would
        have, and lifts as the server would."""
        task, tensors = self.task, self.down.tensors
        stage, options = self.plan.stage_at(task.round), self.plan.config.aggregate
        assert task.pact is not None and stage.masked is not None
        guard = Guard(stage.schema, tensors, options.max_norm)
        expected = (task.site, task.round, stage.stage.name)
        return Cover(
            task.site,
            task.round,
            self.run,
            self.down.digest,
            self.secret,
            task.pact,
            stage.masked.bytes_up,
            lift=lambda update, weight: lifted(update, weight, stage.schema, tensors, options),
            refusal=lambda update, weight: guard.refusal(update, weight, expected, {}),
            vouch=self.vouch,
        )

    @cached_property
    def key(self) -> PublicKey:
        """The key that this turn's reply announces."""
        return announced(self.secret, self.run, self.task.site, self.task.round, self.vouch)

    def again(self, door: Door) -> Reply | None:
        """The reply to a message that was answered before, in this attempt or another one."""
        message = self.task.answers(self.down.digest)
        if not self._file.exists() or not door.ledger.answered(self.task.round, message):
            return None
        tensors, meta = read_tensors(self._file)
        if meta["message"] != self.down.digest:
            return None
        return self._reply(door, Update(tensors=tensors, **meta["update"]), bool(meta["kept"]))

    def reply(self, door: Door, update: Update, kept: bool) -> Reply:
        """Hold the update and send it under its masks."""
        told = {name: value for name, value in vars(update).items() if name != "tensors"}
        meta = {"message": self.down.digest, "kept": kept, "update": told}
        write_tensors(self._file, update.tensors, meta)
        return self._reply(door, update, kept)

    def withheld(self, err: Withheld) -> Reply:
        """No update, and the reason."""
        stage = self.plan.stage_at(self.task.round).stage.name
        nothing = Update(self.task.site, self.task.round, stage, {})
        return Reply(nothing, key=self.key, withheld=str(err))

    def _reply(self, door: Door, update: Update, kept: bool) -> Reply:
        try:
            return Reply(door.mask(update, self.cover), kept, self.key)
        except Withheld as err:
            return self.withheld(err)

    @property
    def _file(self) -> Path:
        return self.folder / "held.safetensors"
