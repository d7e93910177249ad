"""What really was, for scoring only: it comes from the data source, never from a site's folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from vitrail.attack.membership.candidates import Candidates, draw_candidates
from vitrail.attack.scene import Scene
from vitrail.attack.shared_images.originals import Originals, select_originals
from vitrail.attack.shared_images.shared_table import SharedTable
from vitrail.attack.true_images import Truth, load_truth
from vitrail.engine.federation import Federation
from vitrail.errors import RunError
from vitrail.rng import Key, derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation

_SHARED = 200  # shared images that are looked at where nobody says how many


class GroundTruth:
    """What findings are scored against. This one knows nothing, and says so when it is asked."""

    def of_site(self, site: str) -> Truth:
        """The images that a site trained on, and images of others."""
        raise RunError(f"nobody says what {site!r} trained on, so that nothing can be scored")

    def originals(self, table: SharedTable) -> Originals:
        """The images that shared ones were made of."""
        raise RunError(f"nobody says what {len(table.sets)} sites shared images of")

    def candidates(self, site: str | None = None) -> Candidates:
        """Images of which some were trained on, by a site or by any, and which."""
        raise RunError(f"nobody says what {site or 'the sites'} trained on")

    def labels(self, scene: Scene) -> Tensor:
        """The true labels of as many images of each site as are guessed at, [k, n]."""
        return torch.stack([self.of_site(site).labels[: scene.count] for site in scene.sites])


class KnownTruth(GroundTruth):
    """A truth that is there already: of sites by their names, or of shared images."""

    def __init__(
        self, sites: Mapping[str, Truth] | None = None, originals: Originals | None = None
    ) -> None:
        self._sites, self._originals = dict(sites or {}), originals

    def of_site(self, site: str) -> Truth:
        """That of the name."""
        return self._sites[site] if site in self._sites else super().of_site(site)

    def originals(self, table: SharedTable) -> Originals:
        """Those it was made of."""
        return super().originals(table) if self._originals is None else self._originals


class RunTruth(GroundTruth):
    """The truth of a run. `images` bounds how many shared images are looked at."""

    def __init__(self, run: Run, key: Key, images: int | None = None) -> None:
        self.run, self.key = run, key
        self._most = images or _SHARED
        self._sites: dict[str, Truth] = {}
        self._shared: tuple[SharedTable, Originals] | None = None

    @cached_property
    def federation(self) -> Federation:
        """Every site's images, as the run dealt them out."""
        return load_run_federation(self.run)

    def of_site(self, site: str) -> Truth:
        """What a site trained on, loaded once."""
        if site not in self._sites:
            self._sites[site] = load_truth(self.federation, site, self.key.at("truth", site))
        return self._sites[site]

    def originals(self, table: SharedTable) -> Originals:
        """The same ones for every attack on a table."""
        if self._shared is None or self._shared[0] is not table:
            key = self.key.at("originals")
            self._shared = (table, select_originals(table, self.federation, self._most, key))
        return self._shared[1]

    def candidates(self, site: str | None = None) -> Candidates:
        """Drawn from the seed of the run, whichever attack asks."""
        key = derive_server_key(self.run.config.run.seed).at("membership")
        return draw_candidates(self.run, self.federation, site, key)
