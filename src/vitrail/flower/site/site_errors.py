"""What a site says of its own trouble: the kind of it. The rest stays in the site's own log.

The text of an error may name files, folders and labels of the site, and a reply must not.
"""

from __future__ import annotations

from vitrail.errors import ConfigError, DataError, RunError
from vitrail.release.masker import WithheldError
from vitrail.wire import WireError

SEE_SITE_LOG = "the site's own log says more"
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (ConfigError, "the terms and the site's own file do not go together"),
    (DataError, "the site's images or labels cannot be used as they are"),
    (RunError, "the site cannot answer this message as its run stands"),
    (OSError, "the site cannot read or write a file of its own"),
    (MemoryError, "the site has not enough memory"),
)
_FAULT = "a fault of the program at the site"


class Refusal(RunError):
    """A refusal in words that hold nothing of the site but its name; they travel as they are."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what, hint=hint)


def describe_error(err: Exception) -> str:
    """What the coordinator may hear of an error: its kind, unless the words are about the
    coordinator's own message or are numbers of a sum."""
    if isinstance(err, Refusal | WireError | WithheldError):
        return str(err)
    sentence = next((says for kind, says in _KINDS if isinstance(err, kind)), _FAULT)
    return f"{sentence}; {SEE_SITE_LOG}"
