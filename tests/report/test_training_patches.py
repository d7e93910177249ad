"""What a class looks like at a site: patches of units that no push ever put onto one."""

import numpy as np
import pytest
import torch

from vitrail.report.training_patches import compute_features, find_patches
from vitrail.runs.reopen import load_run_federation


@pytest.mark.parametrize("name", ["fedgrasp", "tesnet"])
def test_each_unit_shows_the_sites_own_image_that_excites_it_most(tiny, name):
    run = tiny(
        method={"name": name},
        partition={"kind": "dirichlet", "alpha": 0.2},
        run={"rounds": 1, "local_reference": False},
    )
    federation = load_run_federation(run)
    labels = federation.images.labels
    for site in run.sites:
        model = run.model(site)
        head, train = model.network.head, federation.sites[site].train
        patches = find_patches(run, site, "personal", model)
        missing = set(range(len(head.owner)))
        for unit, owner in enumerate(head.owner.tolist()):
            rows = train[labels[train] == owner]
            if not len(rows):
                assert patches.get(unit) is None and unit not in patches.grounded
                continue
            missing.discard(unit)
            with torch.no_grad():
                peaks = [
                    float(
                        head.maps(compute_features(model, federation.images.images[r]))[
                            0, unit
                        ].max()
                    )
                    for r in rows
                ]
            patch = patches.get(unit)
            assert patch.row == rows[int(np.argmax(peaks))] and patch.distance is None
        assert patches.grounded == frozenset(range(len(head.owner))) - missing
    assert find_patches(run, None, "global", run.model()).get(0) is None
