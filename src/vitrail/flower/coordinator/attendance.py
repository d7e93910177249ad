"""Who is there, who is awaited and who is gone, told whenever it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vitrail.flower.events import EventTeller
from vitrail.flower.plain_text import clean_text


@dataclass
class Attendance:
    """What a coordinator sees of its sites. `names` are those that may come, where keys name
    them; `log` writes to the run's log what happened outside of a round."""

    teller: EventTeller | None = None
    log: Callable[[str], None] | None = None
    names: tuple[str, ...] = ()
    _seen: set[str] | None = field(default=None, init=False)

    def look(self, present: Sequence[str], expected: int = 0) -> None:
        """Tell who came and who left since the last look, and who is still awaited."""
        before, now = self._seen or set(), set(present)
        if self._seen is not None and now == before:
            return
        for name in sorted(now - before):
            self._note("came", f"site {name} is connected", site=name)
        for name in sorted(before - now):
            self._note("left", f"site {name} is no longer connected", site=name)
        if len(now) < expected:
            awaited = sorted(name for name in self.names if name not in now)
            missing = expected - len(now)
            words = f"waiting for {', '.join(awaited) or f'{missing} more sites'}"
            if awaited and len(awaited) > missing:
                words = f"waiting for {missing} of {', '.join(awaited)}"
            self._note("awaiting", words, awaited=awaited, missing=missing)
        elif expected and len(before) < expected:
            self._note("complete", f"all {expected} sites are there", awaited=[], missing=0)
        self._seen = now

    def note_declined(self, site: str, why: str) -> None:
        """A site said no, or could not say yes; the log of the run has its own line."""
        self._tell("declined", f"site {site} does not take part: {why}", site=site, why=why)

    def note_joined(self, site: str) -> None:
        """A site agreed to the terms."""
        self._tell("joined", f"site {site} takes part", site=site)

    def note_absent(self, round_: int, site: str, why: str, closing: bool = False) -> None:
        """A round has to do without a site; the journal has its own line."""
        when = "closing turn" if closing else f"round {round_}"
        facts = {"round": round_, "site": site, "why": clean_text(why)}
        self._tell("absent", f"{when}: without {site}: {why}", **facts)

    def _note(self, kind: str, text: str, **facts: object) -> None:
        if self.log is not None:
            self.log(text)
        self._tell(kind, text, **facts)

    def _tell(self, kind: str, text: str, **facts: object) -> None:
        if self.teller is not None:
            self.teller.tell(kind, text, **facts)
