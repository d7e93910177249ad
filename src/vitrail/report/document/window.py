"""What a reader may look through: a model, images, and whether their pixels may be shown.

Without a site, only images that are public or the server's own are looked at; with one, that
site's. Pixels and maps are shown if the images are public or the reader asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.data.images import ImageSet
from vitrail.data.partition import SiteRows
from vitrail.engine.loaded import Run
from vitrail.engine.reference import images_of
from vitrail.errors import RunError, VitrailError, nearest
from vitrail.report.document.account import Account
from vitrail.report.document.block import Missing
from vitrail.report.document.markup import el, say
from vitrail.report.explanation import Explainer

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
                hint=nearest(self.site, run.sites),
            )

    def sees(self, account: Account) -> bool:
        """Whether pixels may be shown."""
        return account.public or self.with_images

    def sites(self, account: Account) -> tuple[str, ...]:
        """Whose own folders may be read for pictures and figures that did not leave them."""
        if self.site is not None:
            return (self.site,)
        return account.run.sites if account.public else ()


@dataclass(frozen=True)
class Window:
    """A model with images to look at; `shown` allows pixels and maps."""

    explainer: Explainer
    images: ImageSet
    train: Rows
    test: Rows
    whose: str  # the test images, in words
    shown: bool


def window(account: Account, viewer: Viewer) -> Window | Missing:
    """Open it, or say why it stays closed."""
    run = account.run
    if not run.round:
        return Missing(say("No round is finished yet, so there is no model to look into."))
    try:
        site = viewer.site
        if site is None and run.keeps_home:
            if not account.public:
                return Missing(
                    say(
                        "{} keeps its models at the sites. {} looks into one of them.",
                        run.config.method.name,
                        el("code", "--site NAME"),
                    )
                )
            site = run.sites[0]
        explainer = Explainer(run, site, top=5)
        federation = images_of(run)
    except (VitrailError, OSError):
        # The reason may name a file, which a report that is shared must not.
        return Missing(
            say(
                "The model or the images of this run could not be opened here, or the images are "
                "no longer those it was trained on; {} says why.",
                el("code", f"vitrail explain {account.name} --prototypes --out parts.html"),
            )
        )
    train, test, whose = _rows(account, viewer, federation.sites, federation.server_test)
    if not len(test):
        return Missing(
            say(
                "The server has no images of its own, and sites are not looked into unasked. "
                "{} looks at one site's.",
                el("code", "--site NAME"),
            )
        )
    return Window(explainer, federation.images, train, test, whose, viewer.sees(account))


def _rows(
    account: Account, viewer: Viewer, sites: Mapping[str, SiteRows], server_test: Rows
) -> tuple[Rows, Rows, str]:
    """Training and test images that may be looked at."""
    if viewer.site is not None and viewer.site in sites:
        own = sites[viewer.site]
        return own.train, own.test, f"the test images of {viewer.site}"
    if account.public:
        train = np.concatenate([site.train for site in sites.values()])
        if len(server_test):
            return train, server_test, "the server's test images"
        return train, np.concatenate([s.test for s in sites.values()]), "all sites' test images"
    nothing = np.zeros(0, np.int64)
    return nothing, server_test, "the server's test images"
