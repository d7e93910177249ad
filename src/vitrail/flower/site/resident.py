"""A site's resident process: `python -m vitrail.flower.site.resident FD SETTINGS` answers messages.

It imports torch, builds the network and reads the images once, and stays for the whole run. Its
parent keeps the connection to the coordinator, and starts it again when it ends.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from vitrail.data.shared_memory import use_site_cache
from vitrail.engine.workers.byte_frames import ChannelClosedError, receive_frame, send_frame
from vitrail.engine.workers.processes import die_with_parent
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.site.limits import SiteLimits
from vitrail.flower.site.private_files import protect_new_files, use_private_scratch
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import SiteServer

_LOCK_SECONDS = 5.0  # for one whose parent was killed a moment ago to be gone


def serve_channel(channel: socket.socket, server: SiteServer) -> None:
    """Answer one message after the other until the parent is gone."""
    while True:
        try:
            raw = receive_frame(channel)
            send_frame(channel, server.answer(bytes(raw)))
        except ChannelClosedError:
            return


def apply_limits(limits: SiteLimits) -> None:
    """The site's own limits on what this process may use; disk and hours are checked by turn."""
    if limits.cores is not None and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[: limits.cores]
        os.sched_setaffinity(0, cores)
    if limits.memory_gib is not None:
        most = int(limits.memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    """Answer on the inherited socket until it closes."""
    settings = json.loads(sys.argv[2])
    die_with_parent(signal.SIGTERM, settings.get("parent"))
    protect_new_files()
    config = SiteConfig.open(settings["file"])
    apply_limits(config.limits)
    keys = None if settings["keys"] is None else Path(settings["keys"])
    signer = None if keys is None else NodeSigner(keys)
    server = SiteServer(config, settings["seeded"], signer, keys)
    channel = socket.socket(fileno=int(sys.argv[1]))
    with config.hold_lock(_LOCK_SECONDS):
        use_private_scratch(config.folder)
        use_site_cache(config.folder)
        send_frame(channel, b"ready")
        serve_channel(channel, server)


if __name__ == "__main__":
    main()
