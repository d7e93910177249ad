"""The runs that the application was started for; nothing else can be reached by any address."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitrail.config.annotation_section import ANNOTATIONS_FILE
from vitrail.data.shared_memory import find_site_folder
from vitrail.engine.federation import Federation
from vitrail.errors import RunError, VitrailError
from vitrail.files import is_locked
from vitrail.live.annotation_store import AnnotationStore
from vitrail.live.draft import Draft, open_site
from vitrail.live.layout import PAGES, address_run
from vitrail.live.own_record import narrow_record
from vitrail.report.run_record import RunRecord
from vitrail.report.training_patches import Patches, find_patches
from vitrail.report.viewer import Rows, Viewer, select_rows
from vitrail.runs.ask_model import Asker, get_asker
from vitrail.runs.opened_run import ModelKind, Run
from vitrail.runs.predict_images import predict_logits
from vitrail.runs.reopen import load_run_federation

if TYPE_CHECKING:
    from vitrail.flower.site.site_config import SiteConfig

_DEEP = 3  # folders below one that was named
_MOST = 400  # test images that are browsed


@dataclass
class LiveRun:
    """One run with what is kept in memory of it."""

    name: str
    path: Path
    viewer: Viewer
    site_config: SiteConfig | None = None  # where a site's own file was given
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _federation: Federation | None = None
    _predictions: dict[Any, Any] = field(default_factory=dict)
    _patches: dict[Any, Patches] = field(default_factory=dict)
    _calibrating: dict[int, threading.Thread] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where its pages are."""
        return address_run(self.name)

    @property
    def pages(self) -> dict[str, str]:
        """Its pages."""
        return PAGES

    @property
    def store(self) -> AnnotationStore:
        """At a site in its folder, where later runs find it; else in the run folder."""
        folder = find_site_folder(self.path) if self.run.end == "site" else None
        return AnnotationStore((folder or self.path) / ANNOTATIONS_FILE)

    @property
    def run(self) -> Run:
        """The run as it lies on disk now."""
        return Run(self.path)

    def read(self) -> RunRecord:
        """Its figures, ledgers and findings as they are now, as far as the viewer may see them."""
        return narrow_record(RunRecord.read(self.run, self.name), self.viewer.site)

    @property
    def may_see(self) -> bool:
        """Whether pixels may be shown: they are public, or a site looks at its own."""
        return bool(self.run.card.get("public")) or self.viewer.with_images

    @property
    def is_running(self) -> bool:
        """Whether a process works in the folder; at a site, whether one answers for it."""
        site = find_site_folder(self.path) if self.run.end == "site" else None
        return is_locked((site or self.path) / "lock")

    @property
    def is_over(self) -> bool:
        """Whether it came to its end; at a site, whether the coordinator needs nothing more."""
        run = self.run
        return run.finished or (run.end == "site" and (run.folder.server / "parted").exists())

    def load_federation(self) -> Federation:
        """Its images, read once."""
        with self._lock:
            if self._federation is None:
                self._federation = load_run_federation(self.run)
            return self._federation

    def choose_asker(self, which: str | None) -> Asker:
        """The model of a kind: global, or the looking site's personal or local one."""
        kinds = self.list_models()
        kind = which if which in kinds else kinds[0]
        return get_asker(self.run, None if kind == "global" else self.home, _to_kind(kind))

    def calibrate_soon(self, asker: Asker) -> bool:
        """Calibrate a model beside everything else; whether that is still being done."""
        if self.run.end == "coordinator" or asker.calibration is not None:
            return False
        key = id(asker)
        with self._lock:
            if key not in self._calibrating:
                work = threading.Thread(target=self._calibrate, args=(asker,), daemon=True)
                self._calibrating[key] = work
                work.start()
            return self._calibrating[key].is_alive()

    def _calibrate(self, asker: Asker) -> None:
        with suppress(VitrailError, OSError):
            asker.ensure_calibrated(self.load_federation())

    def find_patches(self, asker: Asker) -> Patches:
        """The training patches of a model, where they are this site's or public."""
        site = self.home if self.may_see and self.run.end != "coordinator" else None
        key = (asker.which, asker.site, self.run.round)
        with self._lock:
            if key not in self._patches:
                self._patches[key] = find_patches(self.run, site, asker.which, asker.model)
            return self._patches[key]

    @property
    def home(self) -> str:
        """The site whose models are looked at: the one that was named, else the first."""
        return self.viewer.site or self.run.sites[0]

    def list_models(self) -> list[str]:
        """The kinds of models that can be asked."""
        run, kinds = self.run, []
        for kind in ("global", "personal", "local"):
            if kind != "global" and not (self.viewer.site or run.card.get("public")):
                continue
            try:
                get_asker(run, None if kind == "global" else self.home, _to_kind(kind))
            except VitrailError:
                continue
            kinds.append(kind)
        if not kinds:
            raise RunError("this run has no model that can be asked here", where=self.name)
        return kinds

    def list_test_rows(self) -> tuple[Rows, str]:
        """The test images that may be looked at, and whose they are."""
        federation = self.load_federation()
        _, test, words = select_rows(
            self.read(), self.viewer, federation.sites, federation.server_test
        )
        if len(test) > _MOST:
            test = test[np.linspace(0, len(test) - 1, _MOST).round().astype(np.int64)]
        return test, words

    def predict_tests(self, which: str | None = None) -> tuple[Rows, Any]:
        """Test images and their probabilities, computed once for each model and round."""
        asker = self.choose_asker(which)
        key = (asker.which, asker.site, self.run.round)
        with self._lock:
            if key not in self._predictions:
                rows, _ = self.list_test_rows()
                if not len(rows):
                    raise RunError(
                        "there are no test images to look at here", hint="Start with --site NAME."
                    )
                images = self.load_federation().images.images
                pixels = np.stack([np.asarray(images[row]) for row in rows])
                logits = predict_logits(asker.model, pixels)
                self._predictions = {key: (rows, logits.softmax(1).numpy())}
            return self._predictions[key]  # type: ignore[no-any-return]


def _to_kind(kind: str) -> ModelKind:
    return {"global": "global", "personal": "personal"}.get(kind, "local")  # type: ignore[return-value]


class Catalog:
    """Finds runs by name; folders are looked through again each time, for runs that are new."""

    def __init__(
        self, paths: Sequence[Path], site: str | None = None, terms: Path | None = None
    ) -> None:
        self.drafts: dict[str, Draft] = {}
        self.paths: list[Path] = []
        self.sites: dict[Path, SiteConfig] = {}
        for path in (path.resolve() for path in paths):
            if path.is_file() and path.suffix == ".toml":
                site = self._add_draft(path, site, terms)
            elif path.is_dir():
                self.paths.append(path)
            else:
                raise RunError("there is no such folder or TOML file", where=str(path))
        self.viewer = Viewer(site, with_images=site is not None)
        for draft in self.drafts.values():
            draft.viewer = self.viewer
        self._known: dict[Path, LiveRun] = {}
        if not self.drafts and not self.list_runs():
            raise RunError(
                "no run lies here",
                where=", ".join(map(str, paths)),
                hint="`vitrail run FILE.toml --out DIR` makes one.",
            )

    def _add_draft(self, file: Path, site: str | None, terms: Path | None) -> str | None:
        """A planned run; a site's file brings its runs along, and the site looks at its own."""
        opened = open_site(file)
        stem, number = file.stem, 2
        while stem in self.drafts:
            stem, number = f"{file.stem}-{number}", number + 1
        self.drafts[stem] = Draft(stem, file, Viewer(), terms if opened is not None else None)
        if opened is None:
            return site
        if site not in (None, opened.name):
            raise RunError(f"this is the file of {opened.name!r}, not of {site!r}", where=str(file))
        runs = opened.folder / "runs"
        self.sites[runs.resolve()] = opened
        if runs.is_dir():
            self.paths.append(runs.resolve())
        return opened.name

    def list_runs(self) -> dict[str, LiveRun]:
        """Every run by the name it has in addresses."""
        runs: dict[str, LiveRun] = {}
        for root in self.paths:
            for path in _find_runs(root, _DEEP):
                stem = ".".join((root.name, *path.relative_to(root).parts))
                stem = stem.encode("utf-8", "replace").decode()  # addresses are Unicode
                name, number = stem, 2
                while name in runs:
                    name, number = f"{stem}-{number}", number + 1
                known = self._known.setdefault(path, LiveRun(name, path, self.viewer))
                known.name, known.site_config = name, self.sites.get(root)
                runs[name] = known
        return runs

    def find(self, name: str) -> LiveRun | None:
        """The run of a name; no name is ever taken for a path."""
        return self.list_runs().get(name)


def _find_runs(folder: Path, depth: int) -> list[Path]:
    if (folder / "config.toml").is_file() and (folder / "server").is_dir():
        return [folder]
    if depth == 0:
        return []
    children = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
    return [run for child in children for run in _find_runs(child, depth - 1)]
