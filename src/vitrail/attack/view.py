"""What a curious server has, and nothing else: the only thing that an attack may look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NoReturn

from torch import Tensor

from vitrail.attack.scene import Scene
from vitrail.attack.shared_images.shared_table import SharedTable
from vitrail.config import Config
from vitrail.engine.plan import Plan
from vitrail.errors import RunError
from vitrail.models.network import Network

Needs = Literal["model", "shared images", "parts", "updates", "gradients"]


class View:
    """What the server of a run holds, read when it is asked for.

    An attack takes from it what it needs. Nothing comes from a site's folder, and nothing of the
    truth is in it. `offers` says what a view has; the rest it refuses in one sentence.
    """

    offers: ClassVar[frozenset[Needs]] = frozenset()
    sites: tuple[str, ...] = ()  # whose updates are looked at; none named: all
    round: int | None = None  # which round; None: the attack's own choice

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        self._refuse("configuration")

    def scenes(self, adaptive: bool = False) -> Sequence[Scene]:
        """Recorded updates: of one round, or of several for an attacker who adapts."""
        del adaptive
        self._refuse("update")

    def list_changes(self) -> dict[str, Tensor]:
        """By site: how far each trainable number moved from what was sent, over all recorded
        rounds, in the order of the network's parameters."""
        self._refuse("update")

    def list_sites(self) -> tuple[str, ...]:
        """The names of all sites of the run."""
        self._refuse("list of sites")

    def list_round_changes(self) -> dict[str, list[dict[str, Tensor]]]:
        """By site: what it sent in each recorded round, by name, as changes of what was sent to
        it; what travels beside the model as it is."""
        self._refuse("update")

    def list_model_changes(self) -> list[dict[str, Tensor]]:
        """How the global model changed in each recorded round, by name."""
        self._refuse("recorded round")

    def shared_images(self) -> SharedTable:
        """The images that sites shared, with how they were made."""
        self._refuse("shared image")

    def global_network(self) -> Network | None:
        """The model that the server ended with; None where part of it stays at the sites."""
        self._refuse("global model")

    def last_round(self) -> int:
        """The last round whose updates were recorded."""
        self._refuse("recorded round")

    def received_network(self, site: str, round_: int) -> Network:
        """The model that a site sent in a round."""
        self._refuse(f"model of {site} in round {round_}")

    def fresh_network(self) -> tuple[Plan, Network]:
        """The plan of the run, and its network where the run began."""
        self._refuse("network to train")

    def _refuse(self, what: str) -> NoReturn:
        raise RunError(f"there is no {what} in this view of a server", where="--attacks")


class SceneView(View):
    """Scenes that are there already: made at hand, or rehearsed."""

    offers = frozenset(("parts", "updates", "gradients"))

    def __init__(self, scenes: Sequence[Scene], adaptive: Sequence[Scene] | None = None) -> None:
        self._scenes = tuple(scenes)
        self._adaptive = self._scenes if adaptive is None else tuple(adaptive)

    def scenes(self, adaptive: bool = False) -> Sequence[Scene]:
        """The scenes of one round, or those of several."""
        return self._adaptive if adaptive else self._scenes


class SharedImageView(View):
    """Shared images that are there already."""

    offers = frozenset(("shared images",))

    def __init__(self, table: SharedTable) -> None:
        self._table = table

    def shared_images(self) -> SharedTable:
        """The table it was made of."""
        return self._table
