"""Images of which an attacker asks whether they were trained on, drawn from the data source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.attack.membership.lira import balance_classes
from vitrail.attack.true_images import Rows
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import Federation
from vitrail.errors import RunError
from vitrail.local.inputs import Inputs
from vitrail.rng import Key
from vitrail.runs.opened_run import Run

_MOST = 400  # candidates of each kind


@dataclass(frozen=True)
class Candidates:
    """Images of which an attacker asks whether they were trained on, and the answers."""

    inputs: Inputs
    rows: Rows
    member: Tensor  # [N] bool

    @property
    def labels(self) -> Tensor:
        """Their labels."""
        return self.inputs.targets(self.rows)


def draw_candidates(run: Run, federation: Federation, site: str | None, key: Key) -> Candidates:
    """Training images of a site (or of all) and as many test images that nobody trained on, of each
    class the same number."""
    sites = federation.sites
    if site is not None and site not in sites:
        raise RunError(f"there is no site {site!r} in this run", where="--site")
    trained = np.concatenate(
        [s.train for s in sites.values()] if site is None else [sites[site].train]
    )
    tested = np.concatenate([*(s.test for s in sites.values()), federation.server_test])
    if not len(tested):
        raise RunError(
            "this run held no image back, so that there is nobody but members",
            where=str(run.path),
            hint="Set partition.test_fraction, or use data with a test split.",
        )
    draw = key.at("candidates").numpy()
    labels = torch.from_numpy(federation.images.labels.astype(np.int64))
    trained, tested = draw.permutation(trained), draw.permutation(tested)
    members, others = balance_classes(labels[trained], labels[tested])
    if not len(members):
        raise RunError(
            "no test image is of a class that was trained on, so that classes would tell",
            where=str(run.path),
            hint="Attack another site, or raise partition.test_fraction.",
        )
    some = draw.permutation(len(members))[:_MOST]
    count = len(some)
    rows = np.concatenate([trained[members.numpy()[some]], tested[others.numpy()[some]]])
    inputs = Inputs(
        images=federation.images.images,
        labels=federation.images.labels,
        normalize=Normalize.of(run.config, int(run.card["channels"])),
    )
    return Candidates(inputs, rows, torch.arange(2 * count) < count)
