"""From a run folder to the attacker's table. Only `server/` and `config.toml` are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.aggregate.masked import ALL
from vitrail.attack.recipe import Recipe
from vitrail.attack.scene import Scene, Turn, uses_batch_statistics
from vitrail.attack.threat import Sees, Statistics, ThreatModel
from vitrail.config import Loaded
from vitrail.data.normalize import Normalize
from vitrail.engine.loaded import Run
from vitrail.engine.plan import Plan, make_plan
from vitrail.engine.transcript import Received, Recording
from vitrail.errors import RunError, nearest
from vitrail.models.network import Network

MODEL = "model/"


@dataclass(frozen=True)
class View:
    """One site in one round, as the server sees it."""

    site: str
    turn: Turn
    images: int


class Server:
    """A server's knowledge of a run: the network, what was sent and what came back."""

    def __init__(self, run: Run, loaded: Loaded | None = None) -> None:
        self.run = run
        made = make_plan(loaded or run.loaded, run.classes, run.card["channels"])
        self.plan, self.network = made
        run.fill_start(self.network)
        self.network.eval()
        self.start = {name: t.clone() for name, t in self.network.state_dict().items()}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        size = int(self.run.card["image_size"])
        return int(self.run.card["channels"]), size, size

    def whole(self, message: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All tensors of the network, as far as a message and the common start tell them."""
        told = {n.removeprefix(MODEL): t for n, t in message.items() if n.startswith(MODEL)}
        return {**self.start, **told}

    def view(
        self, round_: int, sent: Mapping[str, Tensor], got: Received, images: int | None = None
    ) -> View:
        """An answer as a turn of one site."""
        update = got.update
        count = images or int(update.counts.get("examples", 0)) or self.examples(update.site)
        steps = int(update.counts.get("steps", 0)) or self.steps(count)
        return View(update.site, turn_of(self, round_, sent, update.tensors, count, steps), count)

    def examples(self, site: str) -> int:
        """How many images a site enrolled with, where an update does not say."""
        told: dict[str, float] = self.run.roster.get(site, {})
        return max(1, int(told.get("examples", 1)))

    def steps(self, count: int) -> int:
        """The steps the configuration asks for."""
        run = self.plan.config.run
        return run.local_epochs * math.ceil(count / run.batch_size)

    def scene(self, views: Sequence[Sequence[View]], count: int, sees: Sees) -> Scene:
        """Sites that answered the same messages, each a list of its views by round."""
        turns = tuple(_stacked([own[i].turn for own in views]) for i in range(len(views[0])))
        recipe, config = turns[0].recipe, self.plan.config
        threat = ThreatModel(
            sees=sees,
            rounds=tuple(turn.round for turn in turns),
            optimizer=recipe.optimizer,
            learning_rate=self.plan.optimizer.lr,
            momentum=recipe.momentum,
            weight_decay=self.plan.optimizer.weight_decay,
            local_steps=recipe.steps,
            batch_size=recipe.batch_size,
            images=recipe.images,
            statistics=recipe.statistics,
            defense=config.release.defenses,
            unknown=len(self.plan.stage_at(turns[0].round).home),
            notes=_notes(self.plan, recipe, count),
        )
        return Scene(
            network=self.network,
            normalize=Normalize.of(config, self.shape[0]),
            shape=self.shape,
            classes=len(self.run.classes),
            sites=tuple(own[0].site for own in views),
            turns=turns,
            count=count,
            threat=threat,
        )


def check_seen(plan: Plan, sites: Sequence[str]) -> None:
    """Refuse to look at what a server with secure sums never had."""
    if plan.secure and sites:
        raise RunError(
            "this run used secure sums: the server never saw the update of one site",
            where="--site",
            hint="Leave it out; what there is to attack is the sum over the sites of a round.",
        )


def turn_of(
    server: Server,
    round_: int,
    sent: Mapping[str, Tensor],
    received: Mapping[str, Tensor],
    images: int,
    steps: int,
) -> Turn:
    """What one site's answer says about its training, as a turn of one site."""
    plan, start = server.plan, server.whole(sent)
    statistics: Statistics = "batch" if _normalizes(server.network) else "none"
    recipe = Recipe.of(
        plan.optimizer, plan.layout, steps, plan.config.run.batch_size, images, statistics
    )
    directions, still, other = {}, set(plan.stage_at(round_).still), {}
    for name, tensor in received.items():
        own = name.removeprefix(MODEL)
        other[own] = tensor[None]
        if own == name or own not in recipe.rates:
            continue
        direction = (start[own] - tensor) / recipe.rates[own]
        if not bool(direction.any()):
            still.add(own)  # this stage does not train it
            continue
        if recipe.single:
            direction = direction - recipe.decays[own] * start[own]
        directions[own] = direction[None]
    if not directions:
        raise RunError(
            f"nothing of the model came back in round {round_}",
            where=str(server.run.path),
            hint="There is no update to attack; choose another round.",
        )
    rates = {name: rate for name, rate in recipe.rates.items() if name not in still}
    return Turn(round_, start, directions, replace(recipe, rates=rates), other)


def _normalizes(network: Network) -> bool:
    """Whether a layer that is trained normalizes by the batch."""
    network.train()
    found = any(
        module.training
        for module in network.modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    )
    network.eval()
    return found and uses_batch_statistics(network)


def _notes(plan: Plan, recipe: Recipe, count: int) -> tuple[str, ...]:
    """What the attack leaves out, in words."""
    notes = []
    if recipe.optimizer != "sgd":
        notes.append(f"steps of {recipe.optimizer} are matched as if they were SGD's")
    if count < recipe.images:
        notes.append(f"{count} guessed images stand for {recipe.images}")
    if plan.config.data.augment.active:
        notes.append("random views of the images are not imagined")
    if plan.method.down_fields(plan.stages[-1].shared):
        notes.append("what the method adds to the local steps is not imagined")
    return tuple(notes)


def _stacked(turns: Sequence[Turn]) -> Turn:
    names = [n for n in turns[0].directions if all(n in turn.directions for turn in turns)]
    others = [n for n in turns[0].released if all(n in turn.released for turn in turns)]
    return replace(
        turns[0],
        directions={n: torch.cat([turn.directions[n] for turn in turns]) for n in names},
        released={n: torch.cat([turn.released[n] for turn in turns]) for n in others},
    )


def read_views(
    server: Server, rounds: Iterable[int], sites: Sequence[str] | None, sees: Sees
) -> dict[str, list[View]]:
    """The recorded answers by site, in the order of the rounds; or their sum as one site."""
    tape = Recording(server.run.folder.server)
    found: dict[str, list[View]] = {}
    for round_ in rounds:
        sent, names = tape.sent(round_), tape.sites(round_)
        for site in sites or ():
            if site not in server.run.sites:
                raise RunError(
                    f"there is no site {site!r} in this run",
                    where="--site",
                    hint=nearest(site, server.run.sites),
                )
        if sees == "sum":
            found.setdefault(ALL, []).append(_sum(server, tape, round_, sent, names))
            continue
        for name in names:
            if not sites or name in sites:
                view = server.view(round_, sent, tape.received(round_, name))
                found.setdefault(name, []).append(view)
    return found


def _sum(
    server: Server, tape: Recording, round_: int, sent: Mapping[str, Tensor], names: Sequence[str]
) -> View:
    """What a server with secure sums sees: the weighed mean of the answers and nothing else."""
    total: dict[str, Tensor] = {}
    weight, images, steps = 0.0, 0, 1
    for name in names:
        got = tape.received(round_, name)
        if got.refused is not None:
            continue
        for key, tensor in got.update.tensors.items():
            if key.startswith(MODEL):
                total[key] = total.get(key, torch.zeros(())) + got.weight * tensor.double()
        weight += got.weight
        own = int(got.update.counts.get("examples", 0)) or server.examples(name)
        images += own
        steps = max(steps, int(got.update.counts.get("steps", 0)) or server.steps(own))
    mean = {key: (tensor / weight).float() for key, tensor in total.items()}
    turn = turn_of(server, round_, sent, mean, images, steps)
    if steps == 1:  # the mean of one step each is one step on everybody's images
        turn = replace(turn, recipe=replace(turn.recipe, batch_size=images))
    return View(ALL, turn, images)
