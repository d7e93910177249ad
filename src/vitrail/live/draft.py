"""A run that is planned: a TOML file of a simulation, or a site's file and the terms it was sent.

Nothing has left yet; what would leave is looked at here, and annotations say what must not.
"""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vitrail.config import Loaded, load
from vitrail.config.annotation_section import ANNOTATIONS_FILE, parse_annotations
from vitrail.engine.federation import Federation, load_federation
from vitrail.engine.resolve_config import resolve_config
from vitrail.errors import ConfigError, RunError, VitrailError
from vitrail.live.annotation_store import AnnotationStore
from vitrail.live.layout import PLAN_PAGES
from vitrail.report.preview_sharing import Preview, Previewer
from vitrail.report.viewer import Viewer

if TYPE_CHECKING:  # the extra `flower` is needed for real federations only
    from vitrail.flower.site.site_config import SiteConfig


@dataclass
class PreviewJob:
    """A preview in the making: each site trains alone first, which takes a while."""

    thread: threading.Thread | None = None
    result: Preview | None = None
    rounds: int = 0
    error: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it is still being made."""
        return self.thread is not None and self.thread.is_alive()


@dataclass
class Draft:
    """A planned run; `terms_file` are the terms that a site was given as a file."""

    name: str
    file: Path
    viewer: Viewer
    terms_file: Path | None = None
    _job: PreviewJob = field(default_factory=PreviewJob)
    _images: tuple[str, Federation] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def address(self) -> str:
        """Where its pages are."""
        return f"/plan/{quote(self.name, safe='')}"

    @property
    def pages(self) -> dict[str, str]:
        """Its pages."""
        return PLAN_PAGES

    @cached_property
    def site(self) -> SiteConfig | None:
        """The site, where the file is one's own; None for a simulation."""
        return open_site(self.file)

    @property
    def store(self) -> AnnotationStore:
        """At a site in its folder, where its runs find it; else beside the file."""
        if self.site is not None:
            return AnnotationStore(self.site.folder / ANNOTATIONS_FILE)
        return AnnotationStore(self.file.with_suffix(f".{ANNOTATIONS_FILE}"))

    def list_terms(self) -> dict[str, Mapping[str, Any]]:
        """Terms by the name of their run: those that wait for an answer, and those of the file."""
        if self.site is None:
            return {}
        terms: dict[str, Mapping[str, Any]] = {}
        for proposal in self.site.proposals():
            raw = json.loads(self.site.proposal_file(proposal.run).read_text(encoding="utf-8"))
            terms[proposal.run] = raw["terms"]
        if self.terms_file is not None:
            from vitrail.flower.terms_file import read_terms

            terms[self.terms_file.name] = read_terms(self.terms_file)
        return terms

    def load(self, which: str = "") -> Loaded:
        """The configuration that would run here, with what was drawn on images."""
        if self.site is None:
            loaded = load(self.file)
            data = loaded.config.data
            drawn = (*data.annotations, *self.store.read())
            data = data.model_copy(update={"annotations": drawn})
            config = loaded.config.model_copy(update={"data": data})
            return replace(loaded, config=config)
        terms = self.list_terms()
        if not terms:
            raise RunError(
                "no terms wait for an answer at this site",
                hint="Start with --terms FILE to look at terms that came as a file.",
            )
        if which and which not in terms:
            raise ConfigError("there are no such terms here")
        loaded = self.site.merge_terms(dict(terms[which or next(iter(terms))]))
        return replace(loaded, config=resolve_config(loaded))

    @property
    def home(self) -> str | None:
        """The site that looks; of public images, none need be named."""
        return self.site.name if self.site is not None else self.viewer.site

    @property
    def may_see(self) -> bool:
        """Whether pixels may be shown: they are public, or a site looks at its own."""
        return self.home is not None or self.load_federation().images.public

    def load_federation(self) -> Federation:
        """Its images, read again when something was drawn on them."""
        with self._lock:
            loaded = self.load()
            key = loaded.config.data.model_dump_json() + loaded.config.partition.model_dump_json()
            if self._images is None or self._images[0] != key:
                self._images = (key, load_federation(loaded))
            return self._images[1]

    def start_preview(self, which: str = "") -> None:
        """Make a preview of one site's shared images beside everything else."""
        with self._lock:
            if self._job.is_running:
                return
            job = self._job = PreviewJob()
            job.thread = threading.Thread(target=self._preview, args=(job, which), daemon=True)
            job.thread.start()

    @property
    def job(self) -> PreviewJob:
        """The newest preview, perhaps not made yet."""
        return self._job

    def _preview(self, job: PreviewJob, which: str) -> None:
        try:
            previewer = Previewer(self.load(which))
            site = self.home or next(iter(previewer.federation.sites))
            job.rounds = previewer.rounds
            job.result = next(previewer.sites((site,)))
        except (VitrailError, OSError) as err:
            job.error = str(err)


def open_site(file: Path) -> SiteConfig | None:
    """A site's own file, or None where a file describes a simulation."""
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise ConfigError(f"this cannot be read ({err})", where=str(file)) from None
    if not isinstance(tree.get("site"), dict):
        return None
    from vitrail.flower.site.site_config import SiteConfig

    parse_annotations(tree.get("data", {}).get("annotations", ()))
    return SiteConfig.open(file)
