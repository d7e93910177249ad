"""Handshakes that fail, told to the coordinator: nothing else shows that a site distrusts it."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from vitrail.flower.coordinator.quiet_teller import QuietTeller

_DISTRUST = (
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
    "DECRYPT_ERROR",  # the signature is not that of an authority of the same name
)


def watch_handshakes(context: ssl.SSLContext, tell: Callable[[str], None]) -> None:
    """Tell of connections that end before they are secure, once a minute and reason."""
    quiet = QuietTeller(tell)

    class WatchedConnection(ssl.SSLObject):
        """A connection whose handshake is looked at; it fails or holds as it would anyway."""

        def do_handshake(self) -> None:
            """Shake hands, and tell if that fails."""
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as err:
                text = describe_handshake_error(err)
                quiet.tell_of(text, text)
                raise

    context.sslobject_class = WatchedConnection


def describe_handshake_error(err: ssl.SSLError) -> str:
    """What a failed handshake means, as far as a coordinator can know."""
    reason = str(err.reason or "UNKNOWN")
    if any(word in reason for word in _DISTRUST):
        return (
            "a site that connected does not accept this coordinator's certificate: its ca.pem may "
            "be of other keys, or it used another host name"
        )
    return f"a connection was closed before it was secure ({reason.replace('_', ' ').lower()})"
