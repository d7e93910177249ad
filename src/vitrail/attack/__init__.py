"""What a curious server can do with exactly what was released."""

from vitrail.attack import inversion, membership, shared_images
from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.budget import Budget
from vitrail.attack.choice import Choice
from vitrail.attack.findings import Findings
from vitrail.attack.inversion.inversion_attack import InversionAttack, Recovery
from vitrail.attack.job import Job
from vitrail.attack.scene import Scene, Turn, one_step
from vitrail.attack.threat_model import ThreatModel
from vitrail.attack.view import View
from vitrail.registry import import_modules

for _room in (inversion, membership, shared_images):
    import_modules(_room)

__all__ = [
    "ATTACKS",
    "Attack",
    "Budget",
    "Choice",
    "Findings",
    "InversionAttack",
    "Job",
    "Recovery",
    "Scene",
    "ThreatModel",
    "Turn",
    "View",
    "one_step",
]
