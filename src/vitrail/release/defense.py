"""Defenses: what stands between a trained model and the wire. They compose in order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ValidationError

from vitrail.config.load import explain
from vitrail.config.schema import Table
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.registry import Registry
from vitrail.release.update import Update


class Defense:
    """One mechanism at the door. `formal` ones carry a proof; `uses_data` ones look at images.

    `Options` are its keys in `[release.<name>]`; an unknown one is an error.
    """

    formal: ClassVar[bool] = False
    uses_data: ClassVar[bool] = False
    Options: ClassVar[type[Table]] = Table

    def __init__(self, name: str, options: Mapping[str, Any], source: str = "config") -> None:
        try:
            self.options: Any = self.Options.model_validate_json(
                json.dumps(dict(options)), strict=True
            )
        except ValidationError as err:
            raise explain(err, source, self.Options, f"release.{name}") from None

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
