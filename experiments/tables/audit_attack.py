"""What an audit's tables give away: membership from class means and histograms, and pictures.

`python -m experiments.tables.audit_attack FOLDER` prints the table. The attacker knows the features
of a candidate image, and images of the same kind from elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from experiments.tables.markdown import to_markdown
from experiments.tables.place_table import load_source
from vitrail.audit.detection.features import FeatureExtractor
from vitrail.audit.detection.histogram import count_bins
from vitrail.config.schema import Model
from vitrail.data.normalize import Normalize
from vitrail.metrics.ranking import auc
from vitrail.models.network import make_network
from vitrail.rng import Key, derive_server_key

Floats = npt.NDArray[np.float64]
SOURCE, SIZES, DRAWS = "nih_chest", (2, 3, 6, 12, 25, 50), 20
_IMAGES, _OUTSIDE = 360, 60
_SIDE = 16  # cells a side of the tone that is told


def compute_features(folder: Path) -> tuple[Floats, Floats]:
    """Features of one class's images, and their luma in 16 x 16 cells."""
    images, labels = load_source(SOURCE, folder)
    images = images[labels == np.bincount(labels).argmax()][:_IMAGES]
    channels = int(images.shape[3])
    model = Model(backbone="efficientnet-lite0", weights="imagenet", frozen=True, until="stage5")
    network, _ = make_network(model, "protopnet", channels, 2, derive_server_key(1).at("init"))
    key = derive_server_key(1).at("audit", "features")
    extractor = FeatureExtractor(network, Normalize.from_name("unit", channels), key)
    tone = torch.from_numpy(np.array(images)).permute(0, 3, 1, 2).double().mean(1, keepdim=True)
    cells = torch.nn.functional.adaptive_avg_pool2d(tone, _SIDE).flatten(1).numpy()
    return extractor(images).numpy().astype(np.float64), cells


def attack_means(rows: Floats, size: int, key: Key) -> float:
    """The area under the curve of the classic attack on a mean (Homer et al. 2008): how far a
    candidate leans to the mean, beyond images from elsewhere, feature by feature."""
    order = key.numpy().permutation(len(rows))
    inside, outside = order[:size], order[size : size + _OUTSIDE]
    elsewhere = rows[order[size + _OUTSIDE :]]
    center, spread = elsewhere.mean(0), elsewhere.std(0) + 1e-6
    told = (rows[inside].mean(0).astype(np.float16).astype(np.float64) - center) / spread
    leans = [((rows[part] - center) / spread) @ told for part in (inside, outside)]
    return auc(leans[0].tolist(), leans[1].tolist())


def attack_histogram(rows: Floats, size: int, key: Key) -> float:
    """The same for one histogram of 32 bins along a random direction: the fuller a candidate's
    bin is, beyond what it is elsewhere, the likelier it is in there."""
    draw = key.numpy()
    order = draw.permutation(len(rows))
    elsewhere = rows[order[size + _OUTSIDE :]]
    center, spread = elsewhere.mean(0), elsewhere.std(0) + 1e-6
    weights = draw.normal(size=rows.shape[1])
    scalars = ((rows - center) / spread) @ weights
    scalars /= scalars[order[size + _OUTSIDE :]].std()
    told = count_bins(scalars[order[:size]]) / size
    usual = (count_bins(scalars[order[size + _OUTSIDE :]]) + 0.5) / len(elsewhere)
    ratio = np.log((told + 0.25 / size) / usual)
    at = np.array([int(count_bins(np.array([value])).argmax()) for value in scalars])
    inside, outside = order[:size], order[size : size + _OUTSIDE]
    return auc(ratio[at[inside]].tolist(), ratio[at[outside]].tolist())


def invert_mean(cells: Floats, size: int, key: Key) -> tuple[float, float]:
    """How the picture of the mean tone correlates with the members', and with other images."""
    order = key.numpy().permutation(len(cells))
    inside, outside = order[:size], order[size : size + _OUTSIDE]
    center = cells[order[size + _OUTSIDE :]].mean(0)
    told = cells[inside].mean(0) - center
    likeness = [
        float(np.mean([np.corrcoef(told, cells[row] - center)[0, 1] for row in part]))
        for part in (inside, outside)
    ]
    return likeness[0], likeness[1]


def main(folder: Path) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    rows, cells = compute_features(folder)
    key = derive_server_key(21).at("attack")
    lines = []
    for size in SIZES:
        keys = [key.at(size, number) for number in range(DRAWS)]
        means = [attack_means(rows, size, one) for one in keys]
        bins = [attack_histogram(rows, size, one) for one in keys]
        pictures = np.array([invert_mean(cells, size, one) for one in keys]).mean(0)
        lines.append(
            [
                str(size),
                f"{np.mean(means):.2f} ± {np.std(means, ddof=1):.2f}",
                f"{np.mean(bins):.2f} ± {np.std(bins, ddof=1):.2f}",
                f"{pictures[0]:.2f}",
                f"{pictures[1]:.2f}",
            ]
        )
    head = ["images in the half", "membership from means, AUC", "from one histogram, AUC"]
    head += ["likeness of the mean's picture to members", "to others"]
    print(f"{len(rows)} images, {rows.shape[1]} features")
    print(to_markdown(head, lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
