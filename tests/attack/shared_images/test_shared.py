"""Attacks on shared images: they see the server's side only, work where they should, and fail
where noise drowns the image."""

import shutil

import numpy as np
import pytest
import torch

from vitrail.attack import Budget, Job
from vitrail.attack.choice import Choice
from vitrail.attack.image_scores import score_images, score_pairs
from vitrail.attack.run_attacks import run_attacks
from vitrail.attack.shared_images.nearest import (
    ALIKE,
    NORMS,
    compute_distances,
    compute_identification_rate,
    score_copies,
    score_origins,
)
from vitrail.attack.shared_images.originals import select_originals
from vitrail.attack.shared_images.shared_table import read_shared
from vitrail.attack.shared_images.unet import UNet, load_or_train_unet, train_unet
from vitrail.errors import ConfigError, DataError, RunError
from vitrail.files import write_tensors
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation

SIDE = 16
DRAW = torch.Generator().manual_seed(5)


def shown(run, count=60):
    table = read_shared(run)
    return table, select_originals(
        table, load_run_federation(run), count, derive_server_key(1).at("originals")
    )


def test_an_imitation_is_what_the_site_shared(sharing):
    run = sharing("silent", sigma=0.0)
    table, truth = shown(run)
    federation = load_run_federation(run)
    again = table.imitate(federation.images.images[truth.rows], derive_server_key(3))
    assert again.shape == truth.shared.shape
    x = torch.from_numpy(federation.images.images[truth.rows]).permute(0, 3, 1, 2) / 255
    model = run.model()
    network, labels = table.server.network, federation.images.labels[truth.rows]
    with torch.no_grad():
        guessed = network(((x - model.shift) / model.scale).float()).argmax(1).numpy()
    known = torch.from_numpy(guessed == labels)
    assert known.any() and not known.all()
    same = (again[0] == truth.shared[0]).flatten(1).all(1)
    assert same[known].all() and not same[~known].all()


def test_shared_images_stand_beside_the_images_they_were_made_of(sharing):
    run = sharing("silent", sigma=0.0)
    _, truth = shown(run, 10_000)
    federation = load_run_federation(run)
    assert len(truth.rows) == sum(len(site.train) for site in federation.sites.values())
    kept = truth.shared[0] != 0  # without noise, what is not zero is a pixel of the original
    assert torch.allclose(truth.shared[0][kept], truth.images[kept], atol=1e-6)
    assert 0.3 < float(kept.double().mean()) < 0.6
    trained = set(truth.rows.tolist())
    assert not trained & {r for site in federation.sites.values() for r in site.test.tolist()}


@pytest.mark.parametrize("name", NORMS)
def test_distances_match_the_slow_formulas(name):
    a, b = (torch.rand(n, 1, 2, 3, generator=DRAW, dtype=torch.float64) for n in (4, 6))
    b[:4] = a[[0, 1, 3, 2]] + 0.01  # two of them are swapped
    slow = torch.empty(6, 4)
    for i, p in enumerate(b.flatten(1).tolist()):
        for j, q in enumerate(a.flatten(1).tolist()):
            gaps = [abs(x - y) for x, y in zip(p, q)]
            dot = sum(x * y for x, y in zip(p, q))
            size = sum(x * x for x in p) ** 0.5 * sum(y * y for y in q) ** 0.5
            slow[i, j] = {
                "l1": sum(gaps), "l2": sum(g * g for g in gaps) ** 0.5, "max": max(gaps),
                "angle": 1 - dot / size,
                "masked": sum(min(y * y, (x - y) ** 2) for x, y in zip(p, q)) ** 0.5,
            }[name]  # fmt: skip
    gaps = compute_distances(a, b, NORMS[name])
    torch.testing.assert_close(score_copies(gaps).float(), -slow.amin(1))
    assert compute_identification_rate(gaps) == 0.5 and compute_identification_rate(gaps[:0]) == 0.0


def test_the_likely_origin_is_bayes_formula_written_out():
    gaps = 1 + torch.rand(3, 5, generator=DRAW, dtype=torch.float64)
    slow = []
    for k in range(5):
        shares = []
        for row in gaps.tolist():
            variance = min(row) ** 2 / 12
            likely = [np.exp(-(g**2) / (2 * variance)) for g in row]
            shares.append(np.log(likely[k] / sum(likely)))
        slow.append(max(shares))
    torch.testing.assert_close(score_origins(gaps, 12), torch.tensor(slow, dtype=torch.float64))
    assert score_origins(torch.zeros(2, 3), 12).isfinite().all()


def test_what_a_site_shares_but_for_its_noise_is_known_to_the_server(sharing):
    """Masks follow the label that was seen, whatever the model guesses."""
    table, truth = shown(sharing("silent", sigma=0.0))
    pixels = load_run_federation(sharing("silent")).images.images[truth.rows]
    for label in range(3):
        own = (truth.targets == label).numpy()
        found = table.share_without_noise(pixels[own], label)
        torch.testing.assert_close(found, truth.shared[0][own], rtol=0, atol=1e-6)


def test_noise_blurs_what_was_shared_not_what_a_candidate_would_have_been(sharing):
    """Loud noise on what a mask leaves: the distance to raw candidates says little, that to
    masked ones nearly everything."""
    found = run_attacks(
        sharing("loud", sigma=0.4), ("match", "shared-membership"), Choice(images=50)
    )
    best = max(value for name, value in by_norm(found).items() if name not in (ALIKE, "masked"))
    assert by_norm(found)[ALIKE] > max(0.8, best)
    told = {m.name: m.auc for m in found.members}
    assert told[f"likely origin, {ALIKE}"] > 0.8


def test_a_site_with_a_budget_of_its_own_is_imitated_with_its_own_noise(sharing):
    table, _ = shown(
        sharing("budgets", protection="local-dp", epsilon=50.0, clip=1.0,
                budgets={"site-00": 0.5})
    )  # fmt: skip
    gray = np.full((600, SIDE, SIDE, 3), 128, np.uint8)
    spread = table.imitate(gray, derive_server_key(2))[0].flatten(1).std(1)
    wanted = {own.site: float(own.pixels.std()) for own in table.sets}
    loud, calm = wanted["site-00"], wanted["site-01"]
    assert loud > 10 * calm
    often = len(table.sets[0].targets) / sum(len(own.targets) for own in table.sets)
    assert float((spread > (loud + calm) / 2).double().mean()) == pytest.approx(often, abs=0.08)


def test_images_of_known_order_are_not_given_the_benefit_of_the_doubt():
    truth = torch.rand(3, 1, 8, 8, generator=DRAW)
    turned = truth[[1, 2, 0]]
    assert all(s.psnr > 99 for s in score_images(turned, truth))
    assert all(s.psnr < 20 and not s.identified for s in score_pairs(turned, truth))
    assert all(s.identified and s.truth == at for at, s in enumerate(score_pairs(truth, truth)))
    with pytest.raises(DataError):
        score_pairs(truth[:2], truth)


def test_a_denoiser_learns_the_way_back_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path))
    raw = torch.nn.functional.interpolate(torch.rand(60, 1, 3, 3, generator=DRAW), size=9)
    noisy = raw + 0.4 * torch.randn((4, *raw.shape), generator=DRAW)
    told = []
    made = load_or_train_unet(
        noisy, raw, derive_server_key(1), 100, lambda done, total, note: told.append(done)
    )
    again = load_or_train_unet(
        noisy, raw, derive_server_key(1), 100, lambda done, total, note: told.append(done)
    )
    fresh = raw + 0.4 * torch.randn(raw.shape, generator=DRAW)
    assert told == list(range(1, 101))  # the second time nothing was trained
    assert torch.equal(made.restore(fresh), again.restore(fresh))
    before, after = ((x - raw).square().mean() for x in (fresh, made.restore(fresh)))
    assert after < before / 3
    assert not torch.equal(
        train_unet(noisy, raw, derive_server_key(2), 1).restore(fresh), made.restore(fresh)
    )


def test_a_denoiser_takes_any_size_scale_and_nothing():
    for size in (5, 8, 28):
        assert UNet(3)(torch.zeros(2, 3, size, size)).shape == (2, 3, size, size)
    assert UNet(1).restore(torch.zeros(0, 1, 8, 8)).shape == (0, 1, 8, 8)
    loud = 1e6 * torch.randn(2, 4, 1, 8, 8, generator=DRAW)
    assert torch.isfinite(
        train_unet(loud, torch.rand(4, 1, 8, 8), derive_server_key(1), 3).restore(loud[0])
    ).all()
    with pytest.raises(DataError, match="public images"):
        train_unet(loud[:, :0], torch.rand(0, 1, 8, 8), derive_server_key(1), 3)


ALL = ("denoise", "match", "shared-membership")
QUICK = {"denoise": {"steps": 60, "draws": 2}}


@pytest.fixture(scope="session")
def results(sharing, public, tmp_path_factory):
    """A function: all three attacks on a run whose `sites/` is gone."""
    made = {}

    def run(name="plain", **options):
        if name not in made:
            copy = tmp_path_factory.mktemp("attacked") / name
            shutil.copytree(sharing(name, **options).path, copy)
            shutil.rmtree(copy / "sites")
            made[name] = run_attacks(
                Run(copy), ALL, Choice(images=50), options=QUICK, public=public
            )
        return made[name]

    return run


def by_norm(found):
    return {m.norm: m.found for m in found.matchings}


def best_auc(found):
    return {m.name.removeprefix("nearest shared image, "): m.auc for m in found.members}


def test_little_noise_protects_nobody(results):
    found = results()
    rows = {row.name: row for row in found.rows}
    assert list(rows) == ["random image", "mean image", "as shared", "denoise"]
    assert rows["denoise"].mean("psnr") > rows["as shared"].mean("psnr")
    assert by_norm(found)["masked"] == 1.0
    assert by_norm(found)[ALIKE] == 1.0
    assert best_auc(found)["masked"] > 0.95
    threat = rows["denoise"].threat
    assert threat.sees == "images" and threat.public_data == "birds.npz"
    assert "paper of shared images" in threat.sentence() and "round 2" in threat.sentence()
    assert len(found.truth) == len(rows["denoise"].images) == 50
    told = found.to_json()
    assert len(told["matchings"]) == len(NORMS) + 1 and len(told["members"]) == len(NORMS) + 2
    assert any("find their original among" in line for line in found.lines())


def test_noise_that_drowns_an_image_protects_it(results):
    """Refuted if an image in noise of six times its range were found more often than by luck."""
    found = results("drowned", protection="local-dp", epsilon=8.0)
    rows = {row.name: row for row in found.rows}
    chance = 1 / found.matchings[0].candidates
    luck = chance + 4 * (chance / 50) ** 0.5
    assert max(by_norm(found).values()) <= luck
    assert all(0.3 < value < 0.7 for value in best_auc(found).values())
    assert rows["denoise"].mean("psnr") < rows["mean image"].mean("psnr") + 1


def test_the_same_question_has_the_same_answer(results, sharing, public):
    again = run_attacks(
        sharing(), ("match", "denoise"), Choice(images=50), options=QUICK, public=public
    )
    first = {row.name: row for row in results().rows}["denoise"]
    assert torch.equal(again.rows[-1].images, first.images)
    assert again.matchings == results().matchings
    assert not again.members


def test_several_views_of_an_image_are_put_together(recorded):
    run = recorded(
        "fedfed",
        data={"aviary": {"images": 60, "classes": 3}, "image_size": SIDE},
        partition={"kind": "iid", "sites": 2, "minimum": 1, "test_fraction": 0.3},
        method={"name": "fedfed", "distill_rounds": 1, "sigmas": [0.1, 0.1]},
        run={"rounds": 3, "batch_size": 16, "record_updates": True},
        optimizer={},
    )
    table, truth = shown(run)
    assert truth.shared.shape[0] == 2 and not torch.equal(*truth.shared)
    again = table.imitate(load_run_federation(run).images.images[truth.rows], derive_server_key(3))
    noise = (again - truth.shared).std()  # two draws of the same noise and nothing else
    assert float(noise) == pytest.approx(0.1 * 2**0.5, rel=0.1)
    found = run_attacks(run, ("match",))
    assert {m.norm: m.found for m in found.matchings}[ALIKE] == 1.0


def test_one_site_can_be_looked_at(sharing):
    run = sharing()
    name = run.sites[0]
    found = run_attacks(run, ("match", "shared-membership"), Choice(sites=(name,)))
    assert found.matchings[0].images == len(load_run_federation(run).sites[name].train)
    assert {m.target for m in found.members} == {name}


def test_what_cannot_be_attacked_says_why(sharing, recorded, tmp_path):
    with pytest.raises(ConfigError, match="public"):
        run_attacks(sharing(), ("denoise",))
    with pytest.raises(RunError, match="fedavg shares no images"):
        run_attacks(recorded(), ("match",))
    with pytest.raises(ConfigError, match="shared nothing"):
        run_attacks(sharing(), ("match",), Choice(sites=("nobody",)))
    with pytest.raises(RunError, match="which is whose"):
        run_attacks(sharing("means", protection="local-dp", group=2), ("match",))
    with pytest.raises(ConfigError, match="two commands"):
        run_attacks(sharing(), ("match", "ig"), budget=Budget(iterations=1))
    copy = tmp_path / "untold"
    shutil.copytree(sharing().path, copy)
    shutil.rmtree(copy / "server" / "transcript")
    with pytest.raises(RunError, match="kept no updates"):
        run_attacks(Run(copy), ("match",))


def test_shared_pixels_that_are_no_numbers_are_refused(sharing, tmp_path):
    copy = tmp_path / "hostile"
    shutil.copytree(sharing().path, copy)
    file = next((copy / "server" / "transcript" / "round-00002" / "updates").glob("*"))
    from vitrail.files import read_tensors

    tensors, meta = read_tensors(file)
    tensors["images/pixels"][0, 0, 0, 0] = torch.nan
    write_tensors(file, tensors, meta)
    with pytest.raises(RunError, match="no numbers"):
        read_shared(Run(copy))


def test_seconds_bound_the_denoiser_and_half_a_denoiser_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path))
    raw = torch.rand(8, 1, 8, 8, generator=DRAW)
    told = []
    tell = lambda done, total, note: told.append(done)  # noqa: E731
    job = Job(Budget(seconds=1e-9))
    made = load_or_train_unet(raw[None], raw, derive_server_key(1), 50, tell, late=lambda: job.late)
    assert made.steps == 0 and not told and not list(tmp_path.rglob("*.safetensors"))
    whole = load_or_train_unet(raw[None], raw, derive_server_key(1), 3, tell)
    assert whole.steps == load_or_train_unet(
        raw[None], raw, derive_server_key(1), 3
    ).steps == 3 and told == [1, 2, 3]


def test_images_were_shared_in_one_round_only(sharing):
    with pytest.raises(ConfigError, match="--round: images were shared in round 2, not in round 3"):
        run_attacks(sharing(), ("match",), Choice(round=3))
    assert run_attacks(sharing(), ("match",), Choice(round=2)).matchings


def test_the_budget_bounds_the_denoiser(sharing, public):
    found = run_attacks(
        sharing(), ("denoise",), Choice(images=5), Budget(iterations=2), QUICK, public=public
    )
    assert found.rows[-1].iterations == 2 and len(found.rows[-1].scores) == 5
    assert Job(Budget(iterations=2)).length(60) == 2
