"""What a site keeps of the attempt it is in: its private keys, and what it has answered so far.

It lies in the site's own folder, for its owner alone, until the next attempt or round replaces it:
then the keys are gone, and nobody can take the masks off any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from vitrail.errors import RunError
from vitrail.files import write_bytes
from vitrail.secure_aggregation.cohort import MAX_ATTEMPTS, SiteKeys

STATE_FILE = "secure-sum.json"
HELD_FILE = "held.safetensors"


@dataclass
class RoundState:
    """One attempt at one round, as far as it has come. Empty fields are steps not yet answered."""

    round: int
    attempt: int
    message: str
    sealing: str  # private, in hexadecimal, as are the next two
    masking: str
    seed: str
    keys: SiteKeys
    cohort: str = ""
    threshold: int = 0
    share_threshold: int = 0
    weights: dict[str, float] = field(default_factory=dict)
    neighbors: dict[str, SiteKeys] = field(default_factory=dict)
    own_share: str = ""  # of the seed
    sealed: dict[str, str] = field(default_factory=dict)  # for each neighbor
    senders: list[str] = field(default_factory=list)
    received: dict[str, str] = field(default_factory=dict)  # sealed for this site
    masked: str = ""  # digest of the masked words
    survivors: list[str] = field(default_factory=list)
    unmasked: bool = False
    asked: dict[str, float] = field(default_factory=dict)  # the sites the round began with


class StateStore(Protocol):
    """Where a site's state lies between the steps."""

    def load(self) -> RoundState | None:
        """What was saved last, or None."""
        ...

    def save(self, state: RoundState) -> None:
        """Keep this instead."""
        ...


_STATE: TypeAdapter[RoundState] = TypeAdapter(RoundState)


@dataclass(frozen=True)
class StateFile:
    """The state in a file of a site's own folder."""

    folder: Path

    def load(self) -> RoundState | None:
        """What was saved last. Writes are atomic, so a file that cannot be read was changed or its
        disk is broken; to take it for none would forget which sum the site confirmed."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return _STATE.validate_json(raw)
        except ValueError as err:
            raise RunError(
                f"{STATE_FILE} cannot be read, so nobody can say which sums this site confirmed",
                where=str(self._path),
                hint="Restore its newest copy, or leave this run: without it a second sum of the "
                "same round could tell this site's update.",
            ) from err

    def save(self, state: RoundState) -> None:
        """On the disk before the answer leaves, readable by its owner alone."""
        write_bytes(self._path, _STATE.dump_json(state), 0o600)

    def close(self, last: int) -> None:
        """The run is over after a round: keys and the held update are gone, and what stays says
        that no sum of any round may be unmasked again."""
        state = self.load()
        if state is None:
            return
        over = max(last, state.round)
        nobody = SiteKeys("", "", "")
        self.save(RoundState(over, MAX_ATTEMPTS, "", "", "", "", nobody, unmasked=True))
        (self.folder / HELD_FILE).unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self.folder / STATE_FILE
