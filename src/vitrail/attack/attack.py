"""What an attack is: a scene in, images (or scores) out. Attacks register beside themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import ValidationError
from torch import Tensor

from vitrail.attack.budget import Job
from vitrail.attack.scene import Scene
from vitrail.attack.threat import ThreatModel
from vitrail.config.load import explain
from vitrail.config.schema import Table
from vitrail.registry import Registry

Needs = Literal["update", "gradient"]
Kind = Literal["images", "patches", "members", "shared"]


@dataclass(frozen=True)
class Recovery:
    """What an attack found: images [k, n, C, H, W] from 0 to 1, and the loss of each site's.

    `labels` are those the attacker believed in. `figures` are the attack's own numbers.
    """

    images: Tensor
    labels: Tensor | None
    loss: Tensor
    threat: ThreatModel
    iterations: int = 0
    seconds: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)


class Attack:
    """One way to find something out. `needs` says what it works on; `Options` are its keys.

    `kind` says what comes out: images, patches that explain prototypes, or who was a member; or
    that it looks at images that were shared.
    """

    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    needs: ClassVar[Needs] = "update"
    kind: ClassVar[Kind] = "images"
    adaptive: ClassVar[bool] = False
    Options: ClassVar[type[Table]] = Table

    def __init__(
        self, name: str, options: Mapping[str, Any] | None = None, source: str = "config"
    ) -> None:
        self.name = name
        try:
            self.options: Any = self.Options.model_validate_json(
                json.dumps(dict(options or {})), strict=True
            )
        except ValidationError as err:
            raise explain(err, source, self.Options, f"attack.{name}") from None

    def recover(self, scene: Scene, job: Job) -> Recovery:
        """Try to get the images of every site of a scene back."""
        raise NotImplementedError(f"{type(self).__name__} must define recover")


ATTACKS: Registry[type[Attack]] = Registry("attack", "attacks")
