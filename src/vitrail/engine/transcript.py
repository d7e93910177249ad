"""The transcript: exactly what the server sent and received, kept if `run.record_updates`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vitrail.files import folder_name, write_tensors
from vitrail.methods.server import Server
from vitrail.release.update import Update


class Transcript:
    """`server/transcript/round-N/`: one file for what went down, one per accepted update."""

    def __init__(self, server: Path) -> None:
        self.folder = server / "transcript"

    def keeper(self, round_: int) -> Callable[[Update, float], None]:
        """A function that writes each update of a round down."""
        folder = self.folder / f"round-{round_:05d}"

        def keep(update: Update, weight: float) -> None:
            meta = {
                "site": update.site,
                "round": update.round,
                "stage": update.stage,
                "counts": dict(update.counts),
                "weight": weight,
            }
            write_tensors(folder / f"{folder_name(update.site)}.safetensors", update.tensors, meta)

        return keep

    def sent(self, round_: int, server: Server) -> None:
        """Write down what went to the sites in a round."""
        views = server.layout.views(server.sent)
        tensors = {f"model/{name}": views[name] for name in server.travels}
        write_tensors(
            self.folder / f"round-{round_:05d}" / "sent.safetensors", tensors, {"round": round_}
        )
