"""What FedXDS promises, played as a game through everything a site does before it shares."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from vitrail.config.schema import Model
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.local.inputs import Inputs
from vitrail.local.session import Site
from vitrail.methods.fedxds import preview_sharing
from vitrail.methods.fedxds_options import XdsOptions
from vitrail.models.flat import FlatModel, Region
from vitrail.models.network import make_network
from vitrail.release.accounting.distinguishing_game import judge_scores
from vitrail.release.accounting.metric_privacy import epsilon_at
from vitrail.release.accounting.randomized_response import compute_truth_probability
from vitrail.release.image_protection import Protection, clip_images
from vitrail.rng import derive_server_key

SIDE, CLASSES, TRIALS = 8, 3, 600
DELTA = 0.05
KEY = derive_server_key(11).at("game")
LOCAL = {"protection": "local-dp", "epsilon": 1.0, "epsilon_label": 0.5, "clip": 1.0}
METRIC = {"protection": "metric", "sigma": 0.8}
GAMES = {
    "a mask of each image": LOCAL,
    "one mask of the model": {**LOCAL, "mask_from": "model"},
    "masks of classes, with a budget": {**LOCAL, "mask_from": "class", "heat_epsilon": 0.5},
    "means over two images": {**LOCAL, "group": 2, "epsilon_label": 30.0},  # labels stay
    "metric": METRIC,
    "metric, masks of classes": {**METRIC, "mask_from": "class", "heat_epsilon": 0.5},
}


def options_of(name):
    return XdsOptions(attribution="gradient", removed=0.5, delta=DELTA, **GAMES[name])


def neighbors(options):
    """Two sites of six images each, which differ in the last image and, where labels are noised,
    in its label."""
    metric, same = options.protection == "metric", options.group > 1
    draw = derive_server_key(3).at("pixels").numpy()
    images = draw.integers(0, 256, (6, SIDE, SIDE, 1), dtype=np.uint8)
    labels = np.array([0, 1, 1, 2, 2, 0])
    other, told = images.copy(), labels.copy()
    other[-1] = images[-1] ^ 31 if metric else 255 - images[-1]
    told[-1] = 0 if metric or same else 1
    network = make_network(
        Model(backbone="small-cnn", width=2), "linear", 1, CLASSES, derive_server_key(0)
    )
    flat, rows = FlatModel(network[0]), SiteRows("a", np.arange(6), np.empty(0, np.int64))
    return [
        Site("a", rows, Inputs(x, y, Normalize.from_name("half", 1)), flat, {}, KEY, Region(()))
        for x, y in ((images, labels), (other, told))
    ]


def scores(sites, options):
    """For each neighbor what speaks for the second: the likelihood ratio of the last image, or of
    the mean that it is in."""
    grouped = options.group > 1
    ends = []
    for site in sites:
        chosen, _ = preview_sharing(replace(site, key=KEY.at("look")), options, CLASSES)
        own = chosen.pixels[-1:]
        ends.append(
            (clip_images(own, options.clip) if options.protection == "local-dp" else own)[0]
        )
    way = (ends[1] - ends[0]).flatten()
    noise = options.make_protection("a").deviation
    right = compute_truth_probability(CLASSES, 0.5)
    label = np.log(right / ((1 - right) / (CLASSES - 1)))
    found = []
    for number, site in enumerate(sites):
        own = []
        for trial in range(TRIALS):
            _, shared = preview_sharing(replace(site, key=KEY.at(number, trial)), options, CLASSES)
            pixels = shared.pixels[shared.targets == 0][0] if grouped else shared.pixels[-1]
            score = float(pixels.double().flatten() @ way.double()) / noise**2
            if not grouped and options.protection == "local-dp":
                told = int(shared.targets[-1])
                score += label * ((told == 1) - (told == 0))
            own.append(score)
        found.append(np.array(own))
    return found


def claim_of(sites, options):
    """What the ledger says of these neighbors."""
    if options.group > 1:  # they have one label
        return options.epsilon
    if options.protection == "local-dp":
        return preview_sharing(sites[0], options, CLASSES)[1].line["epsilon"]
    masked = [preview_sharing(site, options, CLASSES)[0].pixels[-1] for site in sites]
    apart = float((masked[0] - masked[1]).norm())
    return epsilon_at(apart, options.sigma, DELTA, "l2") + (options.heat_epsilon or 0.0)


@pytest.mark.parametrize("name", GAMES)
def test_nobody_tells_neighbors_apart_better_than_the_ledger_says(name):
    """Masks, labels, groups and clipping included; refuted by an epsilon that the game proves at
    99 % to be above the claim."""
    options = options_of(name)
    sites = neighbors(options)
    line = preview_sharing(sites[0], options, CLASSES)[1].line
    assert line["guarantee"].startswith("formal")
    verdict = judge_scores(*scores(sites, options), 2 * DELTA, 0.99)
    assert verdict.epsilon <= claim_of(sites, options)


@pytest.mark.parametrize("name", ["a mask of each image", "means over two images", "metric"])
def test_the_game_catches_a_quarter_of_the_noise(name, monkeypatch):
    options = options_of(name)
    sites = neighbors(options)
    claim = claim_of(sites, options)
    whole = Protection.deviation.fget
    monkeypatch.setattr(Protection, "deviation", property(lambda how: whole(how) / 4))
    trials = (
        5 * TRIALS if name == "a mask of each image" else TRIALS
    )  # what is proved grows with them
    monkeypatch.setitem(globals(), "TRIALS", trials)
    assert judge_scores(*scores(sites, options), 2 * DELTA, 0.99).epsilon > claim


def test_the_last_image_alone_is_what_the_score_looks_at():
    """Without noise and coins the two neighbors are told apart each time."""
    options = XdsOptions(attribution="gradient", removed=0.5, sigma=1e-4)
    without, there = scores(neighbors(options), options)
    assert there.min() > without.max() and torch.isfinite(torch.tensor(there)).all()
