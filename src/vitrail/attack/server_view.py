"""From a run folder to the attacker's table. Only `server/` and `config.toml` are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.attack.inversion.training_recipe import Recipe
from vitrail.attack.scene import Scene, Turn, uses_batch_statistics
from vitrail.attack.threat_model import Sees, Statistics, ThreatModel
from vitrail.config import Loaded
from vitrail.data.normalize import Normalize
from vitrail.engine.plan import Plan, make_plan
from vitrail.engine.storage.transcript import ReceivedUpdate, Recording
from vitrail.errors import RunError, suggest_name
from vitrail.models.network import Network
from vitrail.runs.opened_run import Run
from vitrail.secure_aggregation.secure_sum import ALL_SITES

MODEL = "model/"


@dataclass(frozen=True)
class SiteAnswer:
    """What one site sent in one round, as the server sees it."""

    site: str
    turn: Turn
    images: int


class ServerView:
    """A server's knowledge of a run: the network, what was sent and what came back."""

    def __init__(self, run: Run, loaded: Loaded | None = None) -> None:
        self.run = run
        planned = make_plan(loaded or run.loaded, run.classes, run.card["channels"])
        self.plan, self.network = planned
        run.fill_start(self.network)
        self.network.eval()
        self.start = {name: t.clone() for name, t in self.network.state_dict().items()}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        size = int(self.run.card["image_size"])
        return int(self.run.card["channels"]), size, size

    def fill_tensors(self, message: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All tensors of the network, as far as a message and the common start tell them."""
        sent = {n.removeprefix(MODEL): t for n, t in message.items() if n.startswith(MODEL)}
        return {**self.start, **sent}

    def read_answer(
        self,
        round_: int,
        sent: Mapping[str, Tensor],
        got: ReceivedUpdate,
        images: int | None = None,
    ) -> SiteAnswer:
        """An answer as a turn of one site."""
        update = got.update
        count = images or int(update.counts.get("examples", 0)) or self.examples(update.site)
        steps = int(update.counts.get("steps", 0)) or self.steps(count)
        turn = make_turn(self, round_, sent, update.tensors, count, steps)
        return SiteAnswer(update.site, turn, count)

    def examples(self, site: str) -> int:
        """How many images a site enrolled with, where an update does not say."""
        counts: dict[str, float] = self.run.roster.get(site, {})
        return max(1, int(counts.get("examples", 1)))

    def steps(self, count: int) -> int:
        """The steps the configuration asks for."""
        run = self.plan.config.run
        return run.local_epochs * math.ceil(count / run.batch_size)

    def make_scene(self, answers: Sequence[Sequence[SiteAnswer]], count: int, sees: Sees) -> Scene:
        """Sites that answered the same messages, each a list of its answers by round."""
        turns = tuple(
            _stack_turns([site[i].turn for site in answers]) for i in range(len(answers[0]))
        )
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
            notes=_list_omissions(self.plan, recipe, count),
        )
        return Scene(
            network=self.network,
            normalize=Normalize.of(config, self.shape[0]),
            shape=self.shape,
            classes=len(self.run.classes),
            sites=tuple(rounds[0].site for rounds in answers),
            turns=turns,
            count=count,
            threat=threat,
        )


def check_visible(plan: Plan, sites: Sequence[str]) -> None:
    """Refuse to look at what a server with secure sums never had."""
    if plan.secure and sites:
        raise RunError(
            "this run used secure sums: the server never saw the update of one site",
            where="--site",
            hint="Leave it out; what there is to attack is the sum over the sites of a round.",
        )


def make_turn(
    server: ServerView,
    round_: int,
    sent: Mapping[str, Tensor],
    received: Mapping[str, Tensor],
    images: int,
    steps: int,
) -> Turn:
    """What one site's answer says about its training, as a turn of one site."""
    plan, start = server.plan, server.fill_tensors(sent)
    statistics: Statistics = "batch" if _has_trained_batch_norm(server.network) else "none"
    recipe = Recipe.of(
        plan.optimizer, plan.layout, steps, plan.config.run.batch_size, images, statistics
    )
    directions, still, released = {}, set(plan.stage_at(round_).still), {}
    for field, tensor in received.items():
        name = field.removeprefix(MODEL)
        released[name] = tensor[None]
        if name == field or name not in recipe.rates:
            continue
        direction = (start[name] - tensor) / recipe.rates[name]
        if not bool(direction.any()):
            still.add(name)  # this stage does not train it
            continue
        if recipe.single:
            direction = direction - recipe.decays[name] * start[name]
        directions[name] = direction[None]
    if not directions:
        raise RunError(
            f"nothing of the model came back in round {round_}",
            where=str(server.run.path),
            hint="There is no update to attack; choose another round.",
        )
    rates = {name: rate for name, rate in recipe.rates.items() if name not in still}
    return Turn(round_, start, directions, replace(recipe, rates=rates), released)


def _has_trained_batch_norm(network: Network) -> bool:
    """Whether a layer that is trained normalizes by the batch."""
    network.train()
    trained = any(
        module.training
        for module in network.modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    )
    network.eval()
    return trained and uses_batch_statistics(network)


def _list_omissions(plan: Plan, recipe: Recipe, count: int) -> tuple[str, ...]:
    """What the attack leaves out, in words."""
    notes = []
    if recipe.optimizer != "sgd":
        notes.append(f"steps of {recipe.optimizer} are matched as if they were SGD's")
    if count < recipe.images:
        notes.append(f"{count} guessed images stand for {recipe.images}")
    if plan.config.data.augment.active:
        notes.append("random views of the images are not imagined")
    if any(not field.name.startswith("model/") for field in plan.stages[-1].schema.down):
        notes.append("what the method adds to the local steps is not imagined")
    return tuple(notes)


def _stack_turns(turns: Sequence[Turn]) -> Turn:
    names = [n for n in turns[0].directions if all(n in turn.directions for turn in turns)]
    others = [n for n in turns[0].released if all(n in turn.released for turn in turns)]
    return replace(
        turns[0],
        directions={n: torch.cat([turn.directions[n] for turn in turns]) for n in names},
        released={n: torch.cat([turn.released[n] for turn in turns]) for n in others},
    )


def read_answers(
    server: ServerView, rounds: Iterable[int], sites: Sequence[str] | None, sees: Sees
) -> dict[str, list[SiteAnswer]]:
    """The recorded answers by site, in the order of the rounds; or their sum as one site."""
    recording = Recording(server.run.folder.server)
    answers: dict[str, list[SiteAnswer]] = {}
    for round_ in rounds:
        sent, names = recording.read_sent(round_), recording.sites(round_)
        for site in sites or ():
            if site not in server.run.sites:
                raise RunError(
                    f"there is no site {site!r} in this run",
                    where="--site",
                    hint=suggest_name(site, server.run.sites),
                )
        if sees == "sum":
            answers.setdefault(ALL_SITES, []).append(
                _read_sum(server, recording, round_, sent, names)
            )
            continue
        for name in names:
            if not sites or name in sites:
                answer = server.read_answer(round_, sent, recording.read_received(round_, name))
                answers.setdefault(name, []).append(answer)
    return answers


def _read_sum(
    server: ServerView,
    recording: Recording,
    round_: int,
    sent: Mapping[str, Tensor],
    names: Sequence[str],
) -> SiteAnswer:
    """What a server with secure sums sees: the weighed mean of the answers and nothing else."""
    total: dict[str, Tensor] = {}
    weight, images, steps = 0.0, 0, 1
    for name in names:
        got = recording.read_received(round_, name)
        if got.refused is not None:
            continue
        for key, tensor in got.update.tensors.items():
            if key.startswith(MODEL):
                total[key] = total.get(key, torch.zeros(())) + got.weight * tensor.double()
        weight += got.weight
        count = int(got.update.counts.get("examples", 0)) or server.examples(name)
        images += count
        steps = max(steps, int(got.update.counts.get("steps", 0)) or server.steps(count))
    mean = {key: (tensor / weight).float() for key, tensor in total.items()}
    turn = make_turn(server, round_, sent, mean, images, steps)
    if steps == 1:  # the mean of one step each is one step on everybody's images
        turn = replace(turn, recipe=replace(turn.recipe, batch_size=images))
    return SiteAnswer(ALL_SITES, turn, images)
