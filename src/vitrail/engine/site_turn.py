"""A host plays the turns of sites. One is resident in each process, with one model."""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from vitrail.config import Config, to_stored_tree
from vitrail.config.added_keys import drop_old_values
from vitrail.data.augment import apply_view as turned
from vitrail.data.partition.partition import SiteRows
from vitrail.engine.class_watch import watch_classes
from vitrail.engine.data_pins import digest_images
from vitrail.engine.plan import Plan, StagePlan
from vitrail.engine.storage.asset_store import AssetStore
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.storage.stored_answers import StoredAnswers
from vitrail.engine.tasks import Reply, RoundMessage, Task
from vitrail.engine.train_ahead import count_together, train_ahead
from vitrail.engine.weigh_sites import make_weight_terms
from vitrail.errors import RunError
from vitrail.local.evaluate import compute_logits
from vitrail.local.inputs import Inputs, Rows
from vitrail.local.session import Context, Metrics, Result, Site, TrainedAhead
from vitrail.local.terms import Terms
from vitrail.methods import METHODS
from vitrail.metrics.classification import compute_classification_metrics
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network
from vitrail.release import DEFENSES
from vitrail.release.asset import Asset
from vitrail.release.door import Door
from vitrail.release.ledger import Ledger
from vitrail.release.masker import WithheldError
from vitrail.release.message import Schema
from vitrail.release.update import Update
from vitrail.rng import Key, derive_site_key
from vitrail.secure_aggregation.cohort import Signer
from vitrail.secure_aggregation.round_state import StateFile
from vitrail.secure_aggregation.site import SiteMasking
from vitrail.secure_aggregation.site_steps import SiteSteps
from vitrail.secure_aggregation.steps import StepAnswer, StepRequest

HOME = "home/"
OWN = "own/"
MODEL = "model/"


def compute_mechanism_digest(config: Config, run: str = "") -> str:
    """What noise depends on beside the message: the mechanisms and, where the secret is not that
    of a simulation, the run. A site's secret outlives both. Masks of a secure sum come off again,
    so it is no mechanism of its own. An option that came later and has its old value changes
    nothing."""
    tree = to_stored_tree(config)
    method = drop_old_values(METHODS[config.method.name].Options, tree["method"])
    release = {**drop_old_values(type(config.release), tree["release"]), "secure_sum": False}
    for name in config.release.options.keys() & set(config.release.defenses):
        release[name] = drop_old_values(DEFENSES[name].Options, release[name])
    text = json.dumps([run, method, release], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Host:
    """Everything a process needs to play any site's turn."""

    def __init__(
        self, plan: Plan, network: Network, inputs: Inputs, sites: dict[str, SiteRows], folder: Path
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.sites = sites
        self.folder = folder
        self.model = FlatModel(network, inputs.device)
        self.start = self.model.values.clone()
        self.values = self.start  # a global model to be evaluated, set by the engine
        self.defenses = plan.defenses()
        self.root: Key | None = None  # the secret of the one site that plays here for real
        self.run = ""  # what its federation calls this run
        self.signer: Signer | None = None
        self.least = 2  # sites in a secure sum
        self._received: tuple[str, Tensor] = ("", self.start)
        self._assets: dict[str, Asset] = {}
        self._data: dict[str, str] = {}
        self._causes: dict[str, str] = {}
        self._ahead: dict[str, TrainedAhead] = {}

    def secret(self, site: str) -> Key:
        """The root of a site's own draws; in simulation it follows from the seed."""
        return self.root or derive_site_key(self.plan.config.run.seed, site)

    def turns(self, tasks: Sequence[Task], down: RoundMessage) -> Iterator[Reply]:
        """The turns of some sites, in order; small heads are trained for several at once."""
        size = count_together(self.plan)
        for first in range(0, len(tasks), size):
            group = tasks[first : first + size]
            if size > 1:
                start = self._open_message(down, self.plan.stage_at(down.round))
                facts = (self.plan, self.inputs, self.sites, self.secret)
                self._ahead = train_ahead(*facts, group, start)
            for task in group:
                yield self.turn(task, down)
        self._ahead = {}

    def turn(self, task: Task, down: RoundMessage) -> Reply:
        """Receive, arrive, evaluate, train, release."""
        began = time.perf_counter()
        stage = self.plan.stage_at(task.round)
        ctx = self.plan.context(task.round, task.sites)
        folder = SiteFolder(self.folder, task.site)
        ledger = self._open_ledger(folder)
        door = Door(task.site, ledger, self.defenses, self.plan.config.release.defenses)
        masking = self._masking(task, down, folder)
        if masking is not None:
            named = task.make_answer_key(down.digest)
            if (answer := masking.repeat(door, named)) is not None:
                return Reply(**vars(answer))
        answers = self._open_answers(folder, masking is not None)
        if answers is not None and ledger.has_answered(
            task.round, message := task.make_answer_key(down.digest)
        ):
            return answers.load(task.round, message)
        site = self._receive(task, down, stage, folder)
        site.terms = Terms() if task.closing else door.terms(site, ctx)  # then nothing leaves
        metrics: dict[str, float | None] = {}
        for phase in stage.stage.last if task.closing else stage.stage.arrive:
            metrics |= phase(site, ctx)
        if task.evaluate:
            metrics |= self._evaluate(site, task)
        if task.closing:
            StateFile(folder.path).close(task.round - 1)  # no sum is unmasked any more
            if stage.stage.last or stage.home:
                folder.save_model("personal", self._collect_own_model(site))
            schema = Schema(down=(), up=(), counts=(), metrics=stage.schema.metrics)
            self._note(folder, task, metrics)
            return self._leave(door, site, schema, {}, metrics, ctx, answers, kept=False)
        site.result = Result()  # what arrived was not trained for the server
        site.terms = self.plan.method.begin(site, down.tensors, ctx).combine(site.terms)
        for phase in stage.stage.train:
            figures: Metrics = phase(site, ctx)
            metrics |= {name: value if value == value else None for name, value in figures.items()}
        extra = {**site.out, **self.plan.method.end(site, ctx)}
        metrics["image_steps"] = float(site.result.images + site.aside)
        metrics["seconds"] = time.perf_counter() - began
        self._note(folder, task, metrics)
        if masking is None:
            kept = self._keep(site, stage, folder, task)
            return self._leave(door, site, stage.schema, extra, metrics, ctx, answers, kept)
        try:
            update = door.release(
                site, stage.schema, extra, metrics, ctx, site.message, masking.masker
            )
        except WithheldError as err:
            return Reply(**vars(masking.withhold(err)))
        return Reply(**vars(masking.answer(door, update, self._keep(site, stage, folder, task))))

    def _leave(
        self,
        door: Door,
        site: Site,
        schema: Schema,
        extra: Mapping[str, Tensor],
        metrics: dict[str, float | None],
        ctx: Context,
        answers: StoredAnswers | None,
        kept: bool,
    ) -> Reply:
        """The reply of a turn; a real site keeps it before its ledger counts it."""

        def keep(update: Update) -> None:
            if answers is not None:
                answers.save(update, kept, site.message)

        update = door.release(site, schema, extra, metrics, ctx, site.message, keep=keep)
        return Reply(update, kept)

    def _open_answers(self, folder: SiteFolder, masked: bool) -> StoredAnswers | None:
        """The answers of a real site; in simulation a turn repeats itself, and under masks the
        masks keep them."""
        if self.root is None or masked:
            return None
        count = self.plan.config.run.checkpoint_every + 1
        return StoredAnswers(folder.path / "answers", count)

    def _digest_mechanism(self) -> str:
        """What the draws that hide something depend on beside the message, made once a run."""
        run = self.run if self.root else ""
        if run not in self._causes:
            self._causes[run] = compute_mechanism_digest(self.plan.config, run)
        return self._causes[run]

    def _digest_data(self, site: str) -> str:
        """The digest of a site's images, made once in a process."""
        if site not in self._data:
            rows, inputs, secret = self.sites[site], self.inputs, self.secret(site)
            self._data[site] = digest_images(inputs.images, inputs.labels, rows, secret)
        return self._data[site]

    def _open_ledger(self, folder: SiteFolder) -> Ledger:
        """A GPU does not repeat itself to the bit, so there a resumed round of a simulation is
        another release; a real site answers a round once, wherever it computes."""
        strict = self.root is not None or self.inputs.device.type == "cpu"
        return folder.ledger(strict, durable=self.plan.private)

    def _masking(self, task: Task, down: RoundMessage, folder: SiteFolder) -> SiteMasking | None:
        """The masks of a turn whose update leaves under some; a message cannot ask for it
        without them."""
        stage = self.plan.stage_at(task.round)
        secure = stage.masked is not None and not task.closing
        if secure is not (task.masks is not None):
            wrong = "without masks" if secure else "under masks"
            raise RunError(
                f"the message of round {task.round} asks for an update {wrong}, against the terms "
                "of the run"
            )
        if task.masks is None:
            return None
        return SiteMasking(
            task.round,
            stage.stage.name,
            stage.schema,
            self.plan.config.aggregate,
            task.masks,
            down.digest,
            down.tensors,
            self._secure_steps(task.site),
            folder.path,
            self._share_noise(task, down),
        )

    def _share_noise(
        self, task: Task, down: RoundMessage
    ) -> Callable[[str], list[tuple[float, int, Key, float | None]]]:
        """The noise of a secure sum that a site adds its share of."""
        ctx = self.plan.context(task.round, task.sites)
        cause = self._digest_mechanism()
        key = self.secret(task.site).at("round", task.round, "shared noise", cause, down.digest)

        def list_noise(rule: str) -> list[tuple[float, int, Key, float | None]]:
            shares = [(d, d.shared_deviation(rule, ctx)) for d in self.defenses]
            return [
                (deviation, d.options.colluding, key.at(d.name), d.shared_limit(rule))
                for d, deviation in shares
                if deviation is not None
            ]

        return list_noise

    def exchange(self, request: StepRequest) -> StepAnswer:
        """A step of a secure sum that is no turn: keys, shares, signatures, unmasking."""
        if self.plan.stage_at(request.round).masked is None:
            raise RunError(
                f"a secure sum is asked for in round {request.round}, against the terms of the run"
            )
        return self._secure_steps(request.site).answer(request)

    def _secure_steps(self, site: str) -> SiteSteps:
        """A site's side of a secure sum, as far as it has come."""
        store = StateFile(SiteFolder(self.folder, site).path)
        least = max(self.least, self.plan.config.run.min_sites)
        terms = make_weight_terms(self.plan, site, len(self.sites[site].train))
        return SiteSteps(site, self.run, store, self.signer, least, terms.find_problem)

    def _open_message(self, down: RoundMessage, stage: StagePlan) -> Tensor:
        """The flat values that a message brings, unpacked once for all sites."""
        if self._received[0] != down.digest:
            flat = self.start.clone()
            views = self.plan.layout.views(flat)
            for name in stage.arrives:
                views[name].copy_(down.tensors[f"model/{name}"])
            self._received = (down.digest, flat)
        return self._received[1]

    def _receive(
        self, task: Task, down: RoundMessage, stage: StagePlan, folder: SiteFolder
    ) -> Site:
        """The site as it is once the message has arrived: shared tensors, home tensors, state."""
        state = folder.load(task.base)
        self.model.values.copy_(self._open_message(down, stage))
        # What is shared from this round on was learned at home; the server has nothing newer.
        kept = (*stage.home, *stage.travels) if task.round == stage.first else stage.home
        self.model.write({n: state[HOME + n] for n in kept if HOME + n in state})
        self.model.reset_counters()
        self.model.still = stage.still
        self.model.network.eval()
        folder.prune(task.floor)
        return Site(
            name=task.site,
            rows=self.sites[task.site],
            inputs=self.inputs,
            model=self.model,
            state={n.removeprefix(OWN): t for n, t in state.items() if n.startswith(OWN)},
            key=self.secret(task.site).at("round", task.round),
            shared=stage.shared,
            received=self.model.values.clone(),
            down=down.tensors,
            assets=self._load_assets(task, folder),
            message=task.make_answer_key(down.digest),
            cause=self._digest_mechanism(),
            digest_data=partial(self._digest_data, task.site),
            ahead=self._ahead.get(task.site),
        )

    def _note(self, folder: SiteFolder, task: Task, metrics: dict[str, float | None]) -> None:
        """Keep the turn's figures at the site where they must not leave it."""
        if self.plan.private:
            later = {
                n: v for n, v in metrics.items() if n in ("train_loss", "image_steps", "seconds")
            }
            folder.note(task.round - 1, {n: v for n, v in metrics.items() if n not in later})
            folder.note(task.round, later)

    def _load_assets(self, task: Task, folder: SiteFolder) -> dict[str, Mapping[str, Tensor]]:
        """What the site has in store for this turn; all sites of a process read it once."""
        for digest in task.lacks:  # in simulation the server's folder is the wire
            folder.assets.take(digest, AssetStore(self.folder / "server" / "assets"))
        wanted = set(task.assets.values())
        self._assets = {d: a for d, a in self._assets.items() if d in wanted}
        for digest in sorted(wanted - set(self._assets)):
            self._assets[digest] = folder.assets.get(digest)
        return {name: self._assets[digest].tensors for name, digest in task.assets.items()}

    def _evaluate(self, site: Site, task: Task) -> dict[str, float | None]:
        """The received model's figures; what became of each class stays in the site's folder."""
        rows, classes = site.rows.test, self.plan.classes
        labels = self.inputs.labels[rows]
        logits = torch.empty(0, len(classes))
        if len(rows):
            logits = compute_logits(self.model.network, self.inputs, rows)
            folder = SiteFolder(self.folder, task.site).path
            watch_classes(folder, task.round - 1, labels, logits.argmax(1).numpy(), classes)
        metrics = compute_classification_metrics(logits, labels, len(classes))
        metrics["test_examples"] = metrics.pop("examples")
        return metrics | self.model.network.compute_metrics()

    def _collect_own_model(self, site: Site) -> dict[str, Tensor]:
        """The site's whole model as it is now, and what its phases keep."""
        model = {MODEL + name: tensor for name, tensor in self.model.named.items()}
        return {**model, **{OWN + name: tensor for name, tensor in site.state.items()}}

    def train_alone(self, name: str) -> None:
        """Train a site's local reference: the same stages and budget, with nothing shared.

        Its turns leave nothing behind but the model, in the site's own folder.
        """
        target = SiteFolder(self.folder, name)
        with tempfile.TemporaryDirectory(prefix="vitrail-") as scratch:
            host = self._copy_isolated(Path(scratch))
            base = host._train_rounds(name, host.plan.config.run.rounds)
            closing = Task(name, base + 1, 1, base, base, closing=True)
            host.turn(closing, RoundMessage(base + 1, {}, "alone, closing"))
            trained = SiteFolder(Path(scratch), name).load_model("personal")
        if trained is not None:
            target.save_model("local", trained)

    def visit(self, name: str, round_: int, trained: int) -> Site:
        """A site before a round, had it trained alone for some; nothing is released or kept.

        The model is this host's, so it lasts until the next visit or turn.
        """
        with tempfile.TemporaryDirectory(prefix="vitrail-") as scratch:
            host = self._copy_isolated(Path(scratch))
            base = host._train_rounds(name, trained)
            task, down = Task(name, round_, 1, base, base), RoundMessage(round_, {}, "visit")
            folder = SiteFolder(Path(scratch), name)
            return host._receive(task, down, host.plan.stage_at(round_), folder)

    def _copy_isolated(self, folder: Path) -> Host:
        """This host where nobody else is: no message, no defense, another folder."""
        host = copy.copy(self)
        host.plan, host.folder, host.defenses = self.plan.make_local_plan(), folder, ()
        host._received, host._ahead = ("", self.start), {}
        return host

    def _train_rounds(self, name: str, rounds: int) -> int:
        """Play the first rounds of a secluded site; returns the round to build on."""
        for round_ in range(1, rounds + 1):
            down = RoundMessage(round_, {}, f"alone {round_}")
            self.turn(Task(name, round_, 1, round_ - 1, round_ - 1, evaluate=False), down)
        return rounds

    def _keep(self, site: Site, stage: StagePlan, folder: SiteFolder, task: Task) -> bool:
        """Save what stays at the site; nothing is written for methods that keep nothing."""
        kept = {HOME + name: self.model.named[name] for name in stage.home}
        state = {**kept, **{OWN + name: tensor for name, tensor in site.state.items()}}
        if state:
            folder.save(task.round, state, task.base)
        return bool(state)

    def logits(self, values: Tensor, rows: Rows) -> Tensor:
        """The logits of a global model on some rows, for the server's own test images."""
        self.model.values.copy_(values)
        self.model.reset_counters()
        return compute_logits(self.model.network, self.inputs, rows)

    def prefix(self, rows: Rows, view: str) -> Tensor:
        """The frozen stages' output on one fixed view of some rows."""
        self.model.network.eval()
        with torch.inference_mode():
            x = self.inputs.normalize(self.inputs.images[rows]).to(self.inputs.device)
            return self.model.network.prefix(turned(x, view)).cpu()
