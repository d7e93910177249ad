"""A site that does not trust the coordinator's certificate is told at the coordinator too."""

from __future__ import annotations

import ssl

import pytest

from vitrail.flower.coordinator.tls_watch import watch_handshakes
from vitrail.flower.keys import make_keys


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Both ends of a handshake in memory; whatever fails at the client reaches the server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    done = {"server": False, "client": False}
    while not all(done.values()):
        for name, end in (("client", theirs), ("server", ours)):
            try:
                end.do_handshake()
                done[name] = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                done[name] = True  # the client has sent its alert


def test_distrust_is_told_once_and_trust_is_not(tmp_path) -> None:
    keys = make_keys(tmp_path / "keys", ["north"], ["localhost"])
    foreign = make_keys(tmp_path / "foreign", ["north"], ["localhost"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys.certificate, keys.private)
    told: list[str] = []
    watch_handshakes(server, told.append)
    shake_hands(server, ssl.create_default_context(cafile=str(keys.authority)))
    assert told == []
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            shake_hands(server, ssl.create_default_context(cafile=str(foreign.authority)))
    assert len(told) == 1 and "does not accept this coordinator's certificate" in told[0]
