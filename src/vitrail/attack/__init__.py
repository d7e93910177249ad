"""What a curious server can do with exactly what was released."""

from vitrail.attack import candidates as _candidates  # noqa: F401  (registers)
from vitrail.attack import denoise as _denoise  # noqa: F401  (registers)
from vitrail.attack import dlg as _dlg  # noqa: F401  (registers)
from vitrail.attack import features as _features  # noqa: F401  (registers)
from vitrail.attack import gifd as _gifd  # noqa: F401  (registers)
from vitrail.attack import ig as _ig  # noqa: F401  (registers)
from vitrail.attack import nearest as _nearest  # noqa: F401  (registers)
from vitrail.attack import prototypes as _prototypes  # noqa: F401  (registers)
from vitrail.attack.attack import ATTACKS, Attack, Recovery
from vitrail.attack.budget import Budget, Job
from vitrail.attack.scene import Scene, Turn, one_step
from vitrail.attack.threat import ThreatModel

__all__ = [
    "ATTACKS",
    "Attack",
    "Budget",
    "Job",
    "Recovery",
    "Scene",
    "ThreatModel",
    "Turn",
    "one_step",
]
