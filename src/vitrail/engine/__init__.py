"""The engine: rounds, checkpoints, resume; in this process or in worker processes."""

from vitrail.engine.folder import RunFolder
from vitrail.engine.run import Progress, resume, start

__all__ = ["Progress", "RunFolder", "resume", "start"]
