"""A run folder as its server sees it. Only `server/` and the configuration are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from vitrail.attack.choice import Choice
from vitrail.attack.scene import Scene
from vitrail.attack.server_view import MODEL, ServerView, SiteAnswer, check_visible, read_answers
from vitrail.attack.shared_images.shared_table import SharedTable, read_shared
from vitrail.attack.threat_model import Sees
from vitrail.attack.view import View
from vitrail.config import Config
from vitrail.engine.plan import Plan, make_plan
from vitrail.engine.storage.transcript import Recording
from vitrail.errors import ConfigError
from vitrail.models.network import Network
from vitrail.runs.opened_run import Run

_ROUNDS = 4  # rounds that an adaptive attacker puts together
_IMAGES = 8  # images on the table where nobody says how many


class RunView(View):
    """What the server of a recorded run holds, as far as a choice asks for it."""

    offers = frozenset(("model", "shared images", "parts", "updates", "gradients"))

    def __init__(self, run: Run, choice: Choice | None = None) -> None:
        self.run, self.choice = run, choice or Choice()
        self.sites, self.round = self.choice.sites, self.choice.round
        self._scenes: dict[bool, Sequence[Scene]] = {}

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.run.config

    def scenes(self, adaptive: bool = False) -> Sequence[Scene]:
        """Sites with equal numbers of images and steps share a scene, so that they share work."""
        if adaptive not in self._scenes:
            self._scenes[adaptive] = self._read_scenes(adaptive)
        return self._scenes[adaptive]

    def list_changes(self) -> dict[str, Tensor]:
        """The sum of all changes of each site, or of the chosen ones."""
        recording = Recording(self.run.folder.server)
        check_visible(ServerView(self.run).plan, self.sites)
        _, network = self.fresh_network()
        names = [f"model/{n}" for n, p in network.named_parameters() if p.requires_grad]
        changes: dict[str, Tensor] = {}
        for round_ in recording.rounds():
            sent = recording.read_sent(round_)
            for site in recording.sites(round_):
                if self.sites and site not in self.sites:
                    continue
                got = recording.read_received(round_, site).update.tensors
                parts = [(got[n].double() - sent[n].double()).flatten() for n in names if n in got]
                flat = torch.cat(parts)
                changes[site] = changes[site] + flat if site in changes else flat
        return changes

    def list_sites(self) -> tuple[str, ...]:
        """Everybody on the roster."""
        return self.run.sites

    def list_round_changes(self) -> dict[str, list[dict[str, Tensor]]]:
        """By site and round; a run with secure sums has none of a single site."""
        recording = Recording(self.run.folder.server)
        changes: dict[str, list[dict[str, Tensor]]] = {}
        for round_ in recording.rounds():
            sent = recording.read_sent(round_)
            for site in recording.sites(round_):
                got = recording.read_received(round_, site).update.tensors
                moved = {
                    n: t.double() - sent[n] if n in sent else t.double() for n, t in got.items()
                }
                changes.setdefault(site, []).append(moved)
        return changes

    def list_model_changes(self) -> list[dict[str, Tensor]]:
        """From message to message, and from the last one to the model at the end."""
        recording = Recording(self.run.folder.server)
        models = [recording.read_sent(round_) for round_ in recording.rounds()]
        network = self.global_network()
        if network is not None:
            models.append({f"{MODEL}{n}": t for n, t in network.state_dict().items()})
        moving = [n for n, t in models[0].items() if n.startswith(MODEL) and t.is_floating_point()]
        return [
            {n: after[n].double() - before[n].double() for n in moving if n in after}
            for before, after in pairwise(models)
        ]

    def shared_images(self) -> SharedTable:
        """What the chosen sites shared, in the round in which it was shared."""
        return self._shared

    def global_network(self) -> Network | None:
        """The model of the last checkpoint."""
        return None if self.run.keeps_home else self.run.model().network

    def last_round(self) -> int:
        """The last round of the transcript."""
        return Recording(self.run.folder.server).rounds()[-1]

    def received_network(self, site: str, round_: int) -> Network:
        """The network as a site sent it, on its own: scenes keep theirs."""
        server, recording = ServerView(self.run), Recording(self.run.folder.server)
        check_visible(server.plan, (site,))
        update = recording.read_received(round_, site).update
        tensors = server.fill_tensors({**recording.read_sent(round_), **update.tensors})
        server.network.load_state_dict(tensors)
        return server.network

    def fresh_network(self) -> tuple[Plan, Network]:
        """A new network at each call, where the run began."""
        run = self.run
        plan, network = make_plan(run.loaded, run.classes, run.card["channels"])
        run.fill_start(network)
        return plan, network

    @cached_property
    def _server(self) -> ServerView:
        server = ServerView(self.run)
        check_visible(server.plan, self.sites)
        return server

    @cached_property
    def _shared(self) -> SharedTable:
        table = read_shared(self.run, self.sites)
        if self.round not in (None, table.stage.first):
            raise ConfigError(
                f"images were shared in round {table.stage.first}, not in round {self.round}",
                where="--round",
                hint="Leave it out.",
            )
        return table

    def _read_scenes(self, adaptive: bool) -> list[Scene]:
        server, recorded = self._server, Recording(self.run.folder.server).rounds()
        first = self.round or recorded[0]
        later = [number for number in recorded if number >= first]
        rounds = later[:_ROUNDS] if adaptive else [first]
        sees: Sees = "sum" if server.plan.secure else self.choice.sees
        groups: dict[tuple[int, int, int, int], list[list[SiteAnswer]]] = {}
        answers_by_site = read_answers(server, rounds, self.sites, sees)
        for answers, count in self._select_sites(answers_by_site, first):
            recipe = answers[0].turn.recipe
            group = (count, recipe.images, recipe.steps, len(answers))
            groups.setdefault(group, []).append(answers)
        return [server.make_scene(members, count, sees) for (count, *_), members in groups.items()]

    def _select_sites(
        self, answers_by_site: dict[str, list[SiteAnswer]], first: int
    ) -> list[tuple[list[SiteAnswer], int]]:
        """Sites in order with the number of images to guess at, until there are enough."""
        held = {name: answers[0].images for name, answers in answers_by_site.items()}
        if not held:
            raise ConfigError(f"no site answered in round {first}", where="--round")
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
        chosen = []
        for name, answers in answers_by_site.items():
            if left > 0:
                chosen.append((answers, min(left, held[name])))
                left -= held[name]
        return chosen
