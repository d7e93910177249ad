"""TesNet's projection against a search patch by patch."""

import pytest
import torch

from vitrail.geometry import deviation
from vitrail.local.phases.push import ROW
from vitrail.report.training_patches import compute_features
from vitrail.runs.reopen import load_run_federation


def train(tiny, name="tesnet", **options):
    method = {"name": name, "project": True, "warm_epochs": 1, "last_epochs": 1, **options}
    return tiny(method=method, run={"rounds": 2, "local_reference": False})


@pytest.mark.parametrize("name", ["tesnet", "tesnet-stiefel"])
def test_projected_vectors_are_directions_of_the_sites_own_patches(tiny, name):
    run = train(tiny, name)
    federation = load_run_federation(run)
    shared = run.model().network
    for site in run.sites:
        own, rows = run.model(site).network.head, run.own(site, "personal")[ROW].tolist()
        train_rows = federation.sites[site].train
        present = set(federation.images.labels[train_rows].tolist())
        basis = own.basis().detach().mT.flatten(0, 1)
        before = shared.head.basis().detach().mT.flatten(0, 1)
        for unit, owner in enumerate(own.owner.tolist()):
            if owner not in present:
                assert rows[unit] == -1
                torch.testing.assert_close(basis[unit], before[unit])
                continue
            of_class = [r for r in train_rows if federation.images.labels[r] == owner]
            assert rows[unit] in of_class
            best = max(patch_cosines(run, shared, federation, r, before[unit]) for r in of_class)
            here = patch_cosines(run, shared, federation, rows[unit], before[unit])
            assert here == pytest.approx(best, abs=1e-4)
            if name == "tesnet":
                assert patch_cosines(run, shared, federation, rows[unit], basis[unit]) > 0.9999
        if name == "tesnet-stiefel":
            assert deviation(own.frames.detach()).max() < 1e-5


def patch_cosines(run, network, federation, row, vector):
    z = compute_features(run.model(), federation.images.images[row])[0].flatten(1).detach()
    return float((vector / vector.norm() @ (z / z.norm(dim=0))).max())


def test_without_it_personal_is_global(tiny):
    run = train(tiny, project=False)
    a, b = run.model(run.sites[0]).network.state_dict(), run.model().network.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
