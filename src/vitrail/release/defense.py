"""Defenses: what stands between a trained model and the wire. They compose in order."""

from __future__ import annotations

from typing import Any

from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.registry import Registry
from vitrail.release.update import Update


class Defense:
    """One mechanism at the door. `formal` ones carry a proof; `uses_data` ones look at images."""

    formal = False
    uses_data = False

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def train(self, site: Site, ctx: Context) -> Terms:
        """Claims on local training, for mechanisms that act on every step."""
        del site, ctx
        return Terms()

    def apply(self, update: Update, site: Site, ctx: Context) -> tuple[Update, Metrics]:
        """What leaves instead of `update`, and figures about the difference."""
        del site, ctx
        return update, {}


DEFENSES: Registry[type[Defense]] = Registry("defense", "release.defenses")


@DEFENSES.register("none")
class NoDefense(Defense):
    """The update leaves as it is."""
