"""What a reader may look through: a model, images, and whether their pixels may be shown.

Without a site, only images that are public or the server's own are looked at; with one, that
site's. Pixels and maps are shown if the images are public or the reader asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.data.image_set import ImageSet
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import RunError, VitrailError, suggest_name
from vitrail.report.blocks import MissingNote
from vitrail.report.explain_images import Explainer
from vitrail.report.html import el, format_html
from vitrail.report.run_record import RunRecord
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Viewer:
    """Who reads the report: perhaps for a site, perhaps allowed to see its images."""

    site: str | None = None
    with_images: bool = False

    def check(self, run: Run) -> None:
        """Refuse a site that the run does not have."""
        if self.site is not None and self.site not in run.sites:
            raise RunError(
                f"there is no site {self.site!r} in this run",
                where=str(run.path),
                hint=suggest_name(self.site, run.sites),
            )

    def may_see(self, record: RunRecord) -> bool:
        """Whether pixels may be shown."""
        return record.is_public or self.with_images

    def list_readable_sites(self, record: RunRecord) -> tuple[str, ...]:
        """Whose own folders may be read for pictures and figures that did not leave them."""
        if self.site is not None:
            return (self.site,)
        return record.run.sites if record.is_public else ()


@dataclass(frozen=True)
class ReportView:
    """A model with images to look at; `shows_pixels` allows pixels and maps."""

    explainer: Explainer
    images: ImageSet
    train: Rows
    test: Rows
    test_description: str  # the test images, in words
    shows_pixels: bool


def open_view(record: RunRecord, viewer: Viewer) -> ReportView | MissingNote:
    """Open it, or say why it stays closed."""
    run = record.run
    if not run.round:
        return MissingNote(
            format_html("No round is finished yet, so there is no model to look into.")
        )
    try:
        site = viewer.site
        if site is None and run.keeps_home:
            if not record.is_public:
                return MissingNote(
                    format_html(
                        "{} keeps its models at the sites. {} looks into one of them.",
                        run.config.method.name,
                        el("code", "--site NAME"),
                    )
                )
            site = run.sites[0]
        if run.end == "coordinator":
            return MissingNote(
                format_html(
                    "The coordinator has no images to look at the model with. A site's report of "
                    "its own folder shows this part."
                )
            )
        explainer = Explainer(run, site, top=5)
        federation = load_run_federation(run)
    except (VitrailError, OSError):
        # The reason may name a file, which a report that is shared must not.
        return MissingNote(
            format_html(
                "The model or the images of this run could not be opened here, or the images are "
                "no longer those it was trained on; {} says why.",
                el("code", f"vitrail explain {record.name} --prototypes --out parts.html"),
            )
        )
    train, test, test_description = select_rows(
        record, viewer, federation.sites, federation.server_test
    )
    if not len(test):
        return MissingNote(
            format_html(
                "The server has no images of its own, and sites are not looked into unasked. "
                "{} looks at one site's.",
                el("code", "--site NAME"),
            )
        )
    return ReportView(
        explainer, federation.images, train, test, test_description, viewer.may_see(record)
    )


def select_rows(
    record: RunRecord, viewer: Viewer, sites: Mapping[str, SiteRows], server_test: Rows
) -> tuple[Rows, Rows, str]:
    """Training and test images that may be looked at."""
    if viewer.site is not None and viewer.site in sites:
        site_rows = sites[viewer.site]
        return site_rows.train, site_rows.test, f"the test images of {viewer.site}"
    if record.is_public:
        train = np.concatenate([site.train for site in sites.values()])
        if len(server_test):
            return train, server_test, "the server's test images"
        return train, np.concatenate([s.test for s in sites.values()]), "all sites' test images"
    nothing = np.zeros(0, np.int64)
    return nothing, server_test, "the server's test images"
