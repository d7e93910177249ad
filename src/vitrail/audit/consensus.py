"""The subspaces' counterpart of the audit: which classes sites agree on, and who stands apart.

It reads what the server holds and nothing else: no image, no site's folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.aggregate.subspace_rules import AGREEMENT, DISTANCE
from vitrail.errors import RunError
from vitrail.local.phases.subspace_distance import FRAMES
from vitrail.runs.opened_run import Run

Floats = npt.NDArray[np.float64]
_MAD_TO_SD = 1.4826  # the median absolute deviation of a normal sample, times this, is its SD


@dataclass(frozen=True)
class SubspaceDeviation:
    """A site and a class: how far the site's subspace is from the agreed one, and from the rest.

    `excess` is the distance over the median of all sites, in robust SDs of the site's class.
    """

    site: str
    label: str
    distance: float
    excess: float


@dataclass(frozen=True)
class Agreement:
    """How far the sites of a federation agree on each class's subspace, in its last round.

    `consensus` and `eigengap` are 1 where all hold the same subspace; a class without a gap has
    no agreed one. `distance` [sites, classes] is geodesic, from 0 to `largest`; it is None where
    the server saw no site's own subspaces (secure sums, or too many sites), and NaN for a site
    that never took part.
    """

    classes: tuple[str, ...]
    sites: tuple[str, ...]
    consensus: Floats
    eigengap: Floats
    distance: Floats | None
    largest: float
    round: int

    def rank_deviations(self) -> list[SubspaceDeviation]:
        """All sites and classes with a distance, those that stand apart most first.

        Sites without an image of a class leave its subspace nearly as it was, and all move by
        some amount: so a site is compared with the other sites on the same class.
        """
        if self.distance is None:
            return []
        excess = compute_excesses(self.distance)
        deviations = [
            SubspaceDeviation(site, label, float(self.distance[i, j]), float(excess[i, j]))
            for i, site in enumerate(self.sites)
            for j, label in enumerate(self.classes)
            if np.isfinite(self.distance[i, j])
        ]
        return sorted(deviations, key=lambda one: -one.excess)

    def to_json(self) -> dict[str, Any]:
        """Numbers by class and by site, for `--out FILE.json`."""
        rows = [] if self.distance is None else self.distance.tolist()
        return {
            "round": self.round,
            "largest_distance": self.largest,
            "classes": [
                {"class": name, "consensus": float(c), "eigengap": float(g)}
                for name, c, g in zip(self.classes, self.consensus, self.eigengap, strict=True)
            ],
            "sites": [
                {"site": site, "distance": [d if d == d else None for d in row]}
                for site, row in zip(self.sites, rows)
            ],
        }


def compute_excesses(distance: Floats) -> Floats:
    """Each distance [sites, classes] minus its class's median, in robust SDs of that class.

    A class in which all sites are equally far has no spread: nobody stands apart in it.
    """
    if not distance.size:
        return np.zeros_like(distance)
    known = np.isfinite(distance)
    away = np.where(known, distance, np.nan)
    quiet = ~known.any(0)
    away[:, quiet] = 0.0
    middle = np.nanmedian(away, axis=0)
    spread = _MAD_TO_SD * np.nanmedian(np.abs(away - middle), axis=0)
    ratio = (away - middle) / np.where(spread > 1e-9, spread, np.inf)
    excesses: Floats = np.where(known, ratio, np.nan)
    return excesses


_AGREEMENT_PREFIX = f"{AGREEMENT}{FRAMES}/"


def averages_subspaces(run: Run) -> bool:
    """Whether the server of a run holds an agreement on subspaces."""
    return _AGREEMENT_PREFIX + "consensus" in run.state()


def read_agreement(run: Run) -> Agreement:
    """What the server of a run with subspaces holds about the sites' agreement."""
    if run.end == "site":
        raise RunError(
            "how far the sites agree is known to the coordinator, not to a site",
            where=str(run.path),
            hint="Ask the coordinator for `vitrail explain RUN --consensus`.",
        )
    if not averages_subspaces(run):
        raise RunError(
            f"{run.config.method.name} does not average subspaces: there is no consensus to show",
            where=str(run.path),
            hint="A method that does: fedgrasp, where it adds up whole subspaces and not steps "
            '(consensus = "tangent"). A run needs at least one round.',
        )
    state, where = run.state(), _AGREEMENT_PREFIX
    distance = state.get(where + DISTANCE)
    p = run.config.model.subspaces.dimension
    return Agreement(
        classes=tuple(run.classes),
        sites=tuple(sorted(run.sites)),
        consensus=state[where + "consensus"].double().numpy(),
        eigengap=state[where + "eigengap"].double().numpy(),
        distance=None if distance is None else distance.double().numpy(),
        largest=float(np.sqrt(p) * np.pi / 2),
        round=run.round,
    )
