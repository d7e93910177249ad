"""TIP's cost: CPU seconds of the door over those of a site's round on ResNet18, in one sitting.

    python benchmarks/tip.py [--images 500] [--epochs 2] [--repeats 3] [--defenses tip,agp]

32 x 32 random images of 10 classes, batch 32, ResNet18 of full width, one thread. A round is the
local training that every method shares; what a defense adds is its `apply`. Its time depends on
the model and the classes, never on the number of sites, which it is not told.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from vitrail.config.load import parse
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.engine.plan import Plan, make_plan
from vitrail.local.inputs import Inputs
from vitrail.local.phases.phase import Fit
from vitrail.local.session import Site
from vitrail.models.flat import FlatModel
from vitrail.release import DEFENSES, Update
from vitrail.rng import derive_site_key

CLASSES = tuple(f"class-{i}" for i in range(10))


def make_site(images: int, epochs: int) -> tuple[Plan, Site]:
    """A site with random images, before its round."""
    config = {"model": {"backbone": "resnet18"}, "run": {"local_epochs": epochs}}
    plan, network = make_plan(parse(config), CLASSES, 3)
    key = derive_site_key(1, "site")
    draw = key.at("images").numpy()
    inputs = Inputs(
        draw.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8),
        draw.integers(0, 10, images),
        Normalize.of(plan.config, 3),
    )
    model = FlatModel(network)
    rows = SiteRows("site", np.arange(images), np.arange(0))
    stage = plan.stages[-1]
    return plan, Site("site", rows, inputs, model, {}, key, stage.shared, model.values.clone())


def measure_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Print the ratio of each defense: median, smallest and largest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--defenses", default="tip,all-channels,agp,prune,quantize")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan, site = make_site(options.images, options.epochs)
    ctx = plan.context(1, 1)
    names = [field.name for field in plan.stages[-1].schema.up]
    ratios: dict[str, list[float]] = {name: [] for name in options.defenses.split(",")}
    for turn in range(options.repeats):
        site.model.values.copy_(site.received)
        training = measure_seconds(lambda: Fit()(site, ctx))
        views = site.model.layout.views(site.model.values.clone())
        update = Update("site", 1, "train", {n: views[n.removeprefix("model/")] for n in names})
        for name in ratios:
            defense = DEFENSES[name](name, {})
            added = measure_seconds(partial(defense.apply, update, site, ctx))
            ratios[name].append(added / training)
            print(f"turn {turn}: {name} {added:.2f} s, training {training:.2f} s", flush=True)
    for name, each in ratios.items():
        spread = f"{100 * min(each):.1f} to {100 * max(each):.1f}"
        print(f"{name}: {100 * statistics.median(each):.1f} % of a round ({spread})")


if __name__ == "__main__":
    main()
