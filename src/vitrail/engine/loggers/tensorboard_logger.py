"""Figures for TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.engine.federation import SERVER
from vitrail.engine.loggers.logger import LOGGERS, Logger, Row, iterate_figures

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@LOGGERS.register("tensorboard")
class TensorBoardLogger(Logger):
    """Event files: `tensorboard --logdir RUN/tensorboard`. The target is another folder."""

    package = "tensorboard"
    extra = "loggers"
    _writer: SummaryWriter | None = None

    def start(self, begun: int) -> None:
        """Open the event file; TensorBoard forgets what was written of later rounds."""
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(self.target) if self.target else self.folder / "tensorboard"
        self._writer = SummaryWriter(str(folder), purge_step=begun + 1 if begun else None)

    def log(self, rows: Sequence[Row]) -> None:
        """One point a figure and round."""
        if self._writer is not None:
            for name, round_, value in iterate_figures(rows, SERVER):
                self._writer.add_scalar(name, value, round_)
            self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
