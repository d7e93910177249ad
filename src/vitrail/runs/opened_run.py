"""A run that was made earlier: its configuration, figures and models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from vitrail.config import Config, Loaded
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import SERVER
from vitrail.engine.plan import Plan, make_plan
from vitrail.engine.site_turn import HOME, MODEL, OWN
from vitrail.engine.site_versions import Versions
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.storage.run_end import RunEnd, describe_continuation, find_run_end
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import OwnModelKind, SiteFolder
from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.files import read_tensors
from vitrail.methods.base.server import Server
from vitrail.models.network import Network
from vitrail.runs.deployed import DeployedModel

if TYPE_CHECKING:
    from vitrail.explain.painting import PaintMode
    from vitrail.explain.what_if import Place
    from vitrail.runs.ask_model import Answer, Cover
    from vitrail.runs.open_image import AnyImage

CurveSource = Literal["auto", "server", "sites"]
ModelKind = Literal["global", "personal", "local"]


def compute_curve(
    rows: Sequence[Mapping[str, Any]], figure: str, where: CurveSource = "auto"
) -> list[tuple[int, float]]:
    """One figure by round out of the rows of a run, as `Run.curve` tells it."""
    rows = [r for r in rows if r.get(figure) is not None]
    server = [(r["round"], float(r[figure])) for r in rows if r["site"] == SERVER]
    if where == "server" or (where == "auto" and server):
        return server
    by_round: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        if row["site"] != SERVER:
            weight = float(row.get("test_examples") or 0.0)
            by_round.setdefault(row["round"], []).append((float(row[figure]), weight))
    return [
        (round_, sum(v * w for v, w in pairs) / total)
        for round_, pairs in sorted(by_round.items())
        if (total := sum(w for _, w in pairs))
    ]


class Run:
    """A run folder opened for reading."""

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder(path)
        self.path = self.folder.path
        loaded = self.folder.open()
        self.config: Config = loaded.config
        self.end: RunEnd = find_run_end(self.folder, self.config)
        self.card = _read_card(self.path, self.end)
        self._loaded = replace(
            loaded, config=_drop_weights_file(self.config, self.card["channels"])
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the logits."""
        return tuple(self.card["classes"])

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites."""
        return tuple(self.card["sites"])

    @property
    def loaded(self) -> Loaded:
        """The configuration as the engine takes it, without weights from elsewhere."""
        return self._loaded

    @property
    def keeps_home(self) -> bool:
        """Whether some of the model stays at the sites, so that there is no global one."""
        plan, _ = make_plan(self._loaded, self.classes, self.card["channels"])
        return bool(plan.stages[-1].home)

    def extractor(self) -> tuple[Network, Normalize]:
        """A network whose backbone every site knows: the global one, else the common start."""
        plan, network = make_plan(self._loaded, self.classes, self.card["channels"])
        if any(name.startswith("backbone.") for name in plan.stages[-1].home):
            self.fill_start(network)
        else:
            self.fill_frozen(network)
            body = {n: t for n, t in self._server(plan)[0].items() if n.startswith("backbone.")}
            network.load_state_dict({**network.state_dict(), **body})
        return network, Normalize.of(self.config, self.card["channels"])

    def _server(self, plan: Plan) -> tuple[dict[str, torch.Tensor], Versions]:
        """The moving tensors as the server has them, and which state each site builds on."""
        stage, versions = plan.stages[-1], Versions()
        server = Server(plan.layout, stage.shared, stage.arrives, torch.empty(plan.layout.size))
        Checkpoints(self.folder.server).load(server, versions, None)
        return dict(plan.layout.views(server.values)), versions

    def state(self) -> dict[str, torch.Tensor]:
        """What the method keeps at the server beside the model, as of the last checkpoint."""
        tensors, _ = read_tensors(Checkpoints(self.folder.server).path(self.round))
        return {n.removeprefix("state/"): t for n, t in tensors.items() if n.startswith("state/")}

    def fill_frozen(self, network: Network) -> None:
        """Put the tensors that never change into a network."""
        frozen = Checkpoints(self.folder.server).load_frozen()
        network.load_state_dict({**network.state_dict(), **frozen})

    def fill_start(self, network: Network) -> None:
        """Put a network where the run began: a seed gives what did not come from elsewhere."""
        self.fill_frozen(network)
        moves = (n for n in network.state_dict() if not network.is_frozen(n))
        if "start" in self.card:
            start = Checkpoints(self.folder.server).load_start() or {}
            network.load_state_dict({**network.state_dict(), **start})
        elif "digest" in self.card and any(n.startswith("backbone.") for n in moves):
            start = Checkpoints(self.folder.server).load_start() or self._recover_start()
            network.load_state_dict({**network.state_dict(), **start})

    def _recover_start(self) -> dict[str, torch.Tensor]:
        """The start of an older run, which did not keep it, from the file it was read from."""
        try:
            opened = replace(self._loaded, config=self.config)
            plan, network = make_plan(opened, self.classes, self.card["channels"])
            why = "" if plan.card["digest"] == self.card["digest"] else "the file holds others"
        except ConfigError as err:
            why = err.what
        if why:
            raise RunError(
                f"the weights that this run began with are no longer there ({why})",
                where=str(self.path),
                hint=f"Put {self.config.model.weights} back as it was.",
            )
        return {n: t for n, t in network.state_dict().items() if n.startswith("backbone.")}

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "server" / "finished").exists()

    @property
    def round(self) -> int:
        """The last round on disk."""
        return Checkpoints(self.folder.server).newest() or 0

    @property
    def roster(self) -> dict[str, dict[str, float]]:
        """What each site told when it enrolled, as the server keeps it."""
        _, meta = read_tensors(Checkpoints(self.folder.server).path(self.round))
        roster: dict[str, dict[str, float]] = meta["roster"]
        return roster

    def rows(self) -> list[dict[str, Any]]:
        """The metrics, one row per round and site."""
        return self.folder.rows()

    def curve(
        self, figure: str = "accuracy", where: CurveSource = "auto"
    ) -> list[tuple[int, float]]:
        """One figure by round: of the global model at the server's test images, or the mean over
        sites of their own models on their own, weighed by test images; `auto` prefers the first."""
        return compute_curve(self.rows(), figure, where)

    def model(self, site: str | None = None, which: ModelKind | None = None) -> DeployedModel:
        """A model as a plain module with its preprocessing.

        `global` is what the server has, `personal` what a site made of it, `local` what a site
        trained alone. Left out: global without a site, personal with one.
        """
        which = which or ("global" if site is None else "personal")
        if which != "global" and site is None:
            raise RunError(
                f"a {which} model belongs to a site", hint=f"Name one: {', '.join(self.sites[:5])}."
            )
        if site is not None and site not in self.sites:
            raise RunError(
                f"there is no site {site!r} in this run", hint=suggest_name(site, self.sites)
            )
        self._check_has_model(site, which)
        plan, _ = make_plan(self._loaded, self.classes, self.card["channels"])
        return self.deployed(self._tensors(plan, site, which))

    def ask(
        self,
        image: AnyImage,
        cover: Cover = None,
        how: PaintMode = "blur",
        paste: AnyImage | None = None,
        without: Sequence[int | Place] = (),
        pull: float = 1.0,
        site: str | None = None,
        which: ModelKind | None = None,
        classes: Sequence[str] = (),
        top: int = 5,
        calibrated: bool = True,
    ) -> Answer:
        """What a model says to one image, and why; with `cover`, `without` or `pull`, what it
        would say then. `vitrail.runs.ask_model.Question` explains the arguments.

        The first question to a model loads it, and calibrates it on test images where they can be
        read; `calibrated = False` leaves that out.
        """
        from vitrail.runs.ask_model import Question, get_asker

        asker = get_asker(self, site, which)
        if calibrated:
            asker.ensure_calibrated()
        opened, donor = asker.open(image), None if paste is None else asker.open(paste)
        question = Question(opened, cover, how, donor, without, pull, classes, top)
        return asker(question)

    def _check_has_model(self, site: str | None, which: ModelKind) -> None:
        """Refuse a model that this end of a real federation does not have."""
        if self.end == "coordinator" and which != "global":
            raise RunError(
                f"the {which} model of site {site!r} is at that site, not at the coordinator",
                where=str(self.path),
                hint="Leave --site out for the global model, or ask at the site.",
            )
        if self.end == "site" and which == "global" and not self.finished:
            raise RunError(
                "this site gets the global model when the federation is finished",
                where=str(self.path),
                hint="Wait for the end of the run; `vitrail flower status` shows how far it is.",
            )

    def deployed(self, tensors: Mapping[str, torch.Tensor]) -> DeployedModel:
        """The model of this run whose moving tensors are these."""
        _, network = make_plan(self._loaded, self.classes, self.card["channels"])
        frozen = Checkpoints(self.folder.server).load_frozen()
        network.load_state_dict({**network.state_dict(), **frozen, **tensors})
        return DeployedModel(network, Normalize.of(self.config, self.card["channels"]), self.card)

    def own(self, site: str, kind: OwnModelKind) -> dict[str, torch.Tensor]:
        """What a site's phases found out with a model of its own (where prototypes lie, say)."""
        tensors = SiteFolder(self.path, site).load_model(kind) or {}
        return {n.removeprefix(OWN): t for n, t in tensors.items() if n.startswith(OWN)}

    def _tensors(self, plan: Plan, site: str | None, which: ModelKind) -> dict[str, torch.Tensor]:
        """The moving tensors of a model."""
        if site is not None and which != "global":
            trained = SiteFolder(self.path, site).load_model(which)
            if trained is not None:
                return {n.removeprefix(MODEL): t for n, t in trained.items() if n.startswith(MODEL)}
        if which == "local":
            raise RunError(
                f"site {site!r} has no local model in this run",
                where=str(self.path),
                hint="Run with run.local_reference = true; `vitrail audit` also trains one.",
            )
        home = plan.stages[-1].home
        if which == "global" and home:
            names = "all of it" if not plan.stages[-1].travels else f"{len(home)} tensors"
            raise RunError(
                f"{self.config.method.name} keeps {names} at the sites: there is no global model",
                where=str(self.path),
                hint=f"Name a site: {', '.join(self.sites[:5])}.",
            )
        tensors, versions = self._server(plan)
        if site is not None and which == "personal":
            tensors |= self._home(site, versions, bool(home))
        return tensors

    def _home(self, site: str, versions: Versions, home: bool) -> dict[str, torch.Tensor]:
        if site not in versions.accepted:
            if home:
                raise RunError(
                    f"site {site!r} took no part in a round yet: it has no model of its own",
                    where=str(self.path),
                    hint=f"Sites that have: {', '.join(sorted(versions.accepted)[:5]) or 'none'}.",
                )
            return {}
        state = SiteFolder(self.path, site).load(versions.accepted[site])
        return {n.removeprefix(HOME): t for n, t in state.items() if n.startswith(HOME)}


def _drop_weights_file(config: Config, channels: int) -> Config:
    """A configuration that needs no file of weights: the run has them in files of its own.

    What `auto` normalization means depends on those weights, so it is said while they are named.
    """
    name = Normalize.of(config, channels).name
    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"weights": None, "start": None}),
            "data": config.data.model_copy(update={"normalize": name}),
        }
    )


def _read_card(path: Path, end: RunEnd) -> dict[str, Any]:
    file = path / "server" / "card.json"
    if not file.is_file():
        raise RunError(
            "this run has not got as far as a model",
            where=str(path),
            hint=describe_continuation(end),
        )
    card: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return card
