"""Which updates of a run are attacked: sites in order, until enough images are on the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vitrail.attack.reading import Server, View, check_seen, read_views
from vitrail.attack.threat import Sees
from vitrail.attack.trial import Case
from vitrail.attack.truth import Truth, truth_of
from vitrail.engine.federation import Federation
from vitrail.engine.loaded import Run
from vitrail.engine.reference import images_of
from vitrail.engine.transcript import Recording
from vitrail.errors import ConfigError
from vitrail.rng import Key

_ROUNDS = 4  # rounds that an adaptive attacker puts together
_IMAGES = 8  # images on the table where nobody says how many


@dataclass(frozen=True)
class Choice:
    """What to attack: how many images in all, of which sites, in which round, seen how."""

    images: int | None = None
    sites: tuple[str, ...] = ()
    round: int | None = None
    sees: Sees = "update"


def whole_round(run: Run, sites: Sequence[str] = ()) -> Choice:
    """Every training image of some sites (none named: all) in the last recorded round."""
    federation, names = images_of(run), tuple(sites) or run.sites
    every = sum(len(federation.sites[name].train) for name in names)
    return Choice(every, tuple(sites), Recording(run.folder.server).rounds()[-1])


class Cases:
    """The cases of a run, for attackers of one round and for those who use several."""

    def __init__(self, run: Run, choice: Choice, key: Key) -> None:
        self.server = Server(run)
        check_seen(self.server.plan, choice.sites)
        if self.server.plan.secure:
            choice = replace(choice, sees="sum")
        self.choice, self.key = choice, key
        self.tape = Recording(run.folder.server)
        self.round = choice.round or self.tape.rounds()[0]
        self.federation: Federation = images_of(run)
        self._truths: dict[str, Truth] = {}

    def build(self, adaptive: bool = False) -> list[Case]:
        """Sites with equal numbers of images and steps share a case, so that they share work."""
        rounds = self._rounds() if adaptive else [self.round]
        views = read_views(self.server, rounds, self.choice.sites, self.choice.sees)
        groups: dict[tuple[int, int, int, int], list[list[View]]] = {}
        for own, count in self._chosen(views):
            recipe = own[0].turn.recipe
            group = (count, recipe.images, recipe.steps, len(own))
            groups.setdefault(group, []).append(own)
        return [
            Case(
                self.server.scene(members, count, self.choice.sees),
                tuple(self._truth(own[0].site) for own in members),
            )
            for (count, *_), members in groups.items()
        ]

    def _rounds(self) -> list[int]:
        later = [r for r in self.tape.rounds() if r >= self.round]
        return later[:_ROUNDS]

    def _chosen(self, views: dict[str, list[View]]) -> list[tuple[list[View], int]]:
        """Sites in order with the number of images to guess at, until there are enough."""
        held = {name: own[0].images for name, own in views.items()}
        if not held:
            raise ConfigError(f"no site answered in round {self.round}", where="--round")
        wanted = self.choice.images
        total = sum(held.values())
        if wanted is not None and wanted < 1:
            raise ConfigError(f"{wanted} images are none", where="--images")
        if wanted is not None and wanted > total:
            who = next(iter(held)) if len(held) == 1 else f"the {len(held)} sites of this round"
            raise ConfigError(
                f"{wanted} images are asked for, and {who} trained on {total}",
                where="--images",
                hint=f"Ask for at most {total}.",
            )
        left = min(total, _IMAGES) if wanted is None else wanted
        found = []
        for name, own in views.items():
            if left > 0:
                found.append((own, min(left, held[name])))
                left -= held[name]
        return found

    def _truth(self, site: str) -> Truth:
        if site not in self._truths:
            self._truths[site] = truth_of(self.federation, site, self.key.at("truth", site))
        return self._truths[site]
