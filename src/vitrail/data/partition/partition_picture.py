"""A picture of a partition: which site has how many images of which class."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from vitrail.data.partition.partition import Partition
from vitrail.files import write_bytes

Ints = npt.NDArray[np.int64]

# Blue and orange of the Okabe-Ito palette, which color-blind readers can tell apart.
TRAIN, TEST = "#0072b2", "#e69f00"
_BLUES = LinearSegmentedColormap.from_list("train", ["#dcebf5", TRAIN, "#00243a"])
_MOST_LABELS = 60  # more words than this along an axis cannot be read


def draw_partition(
    partition: Partition, labels: Ints, classes: tuple[str, ...], path: Path
) -> None:
    """Draw a partition as a PNG; see `draw_counts`."""
    sites = partition.sites
    train = np.array([np.bincount(labels[s.train], minlength=len(classes)) for s in sites])
    test = np.array([len(s.test) for s in sites])
    names = tuple(s.name for s in sites)
    draw_counts(names, train, test, classes, len(partition.server_test), path)


def draw_counts(
    sites: tuple[str, ...],
    train: Ints,
    test: Ints,
    classes: tuple[str, ...],
    server_test: int,
    path: Path,
) -> None:
    """Draw sites by classes as a PNG: a heat map of training images, totals at the side.

    `train` counts images by site and class, `test` by site.
    """
    words = max(len(_short(name)) for name in classes) * 0.055
    high = (0.26 if len(sites) <= _MOST_LABELS else 0.14) * min(len(sites), 160) + words + 1.2
    wide = min(max(0.34 * len(classes), 3.6), 16.0)
    figure = Figure(figsize=(wide + 4.2, high), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(wide, 2.2), sharey=True)
    _heat(figure, left, train, classes, list(sites))
    _totals(right, train.sum(axis=1).tolist(), test.tolist())
    held = f", {server_test:,} test images at the server" if server_test else ""
    noun = "site" if len(sites) == 1 else "sites"
    figure.suptitle(f"{len(sites)} {noun}, {len(classes)} classes{held}", fontsize=11)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    write_bytes(path, buffer.getvalue())


def _heat(
    figure: Figure,
    axes: Axes,
    counts: npt.NDArray[np.int64],
    classes: tuple[str, ...],
    names: list[str],
) -> None:
    """Counts by color on a log scale, written out while there is room; white is none."""
    most = max(int(counts.max()), 2)
    shown = np.ma.masked_equal(counts, 0)
    image = axes.imshow(shown, cmap=_BLUES, norm=LogNorm(1, most), aspect="auto")
    if counts.shape[1] <= 30 and counts.shape[0] <= _MOST_LABELS:
        axes.set_title("training images by class", fontsize=8, loc="left")
        for (row, column), count in np.ndenumerate(counts):
            shade = "white" if count > most**0.4 else "black"
            if count:
                text = f"{count}" if count < 10_000 else f"{count / 1000:.0f}k"
                axes.text(column, row, text, ha="center", va="center", color=shade, fontsize=6)
    else:
        bar = figure.colorbar(image, ax=axes, location="top", pad=0.01, shrink=0.5, aspect=40)
        bar.set_label("training images by class (white: none)", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        bar.ax.xaxis.set_major_formatter(ScalarFormatter())
    _label(axes, "x", list(classes))
    _label(axes, "y", names)
    # Two collections of lines: a grid at minor ticks takes seconds for 100 sites.
    rows, columns = counts.shape
    axes.hlines(np.arange(rows + 1) - 0.5, -0.5, columns - 0.5, color="#dddddd", linewidth=0.4)
    axes.vlines(np.arange(columns + 1) - 0.5, -0.5, rows - 0.5, color="#dddddd", linewidth=0.4)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))


def _label(axes: Axes, which: str, words: list[str]) -> None:
    """Every word if there is room, else every second, fifth, tenth and so on."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 10**9) if len(words) / s <= _MOST_LABELS)
    at = list(range(0, len(words), step))
    short = [_short(words[i]) for i in at]
    if which == "x":
        axes.set_xticks(at, short, fontsize=7, rotation=90 if max(map(len, short)) > 2 else 0)
    else:
        axes.set_yticks(at, short, fontsize=7)


def _short(word: str) -> str:
    """At most 48 letters, from both ends; a dollar sign would start a formula."""
    word = word if len(word) <= 48 else f"{word[:24]}…{word[-23:]}"
    return word.replace("$", r"\$")


def _totals(axes: Axes, train: list[int], test: list[int]) -> None:
    """Bars of train and test images, one line for each site."""
    places = np.arange(len(train))
    axes.barh(places, train, color=TRAIN, height=0.8, label="train")
    axes.barh(places, test, left=train, color=TEST, height=0.8, label="test")
    axes.set_xlabel("images", fontsize=8)
    axes.tick_params(labelsize=7, labelleft=False, length=2)
    if len(train) <= _MOST_LABELS:
        for place, (a, b) in enumerate(zip(train, test)):
            axes.text(a + b, place, f" {a:,} + {b:,}", va="center", fontsize=6)
        axes.margins(x=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=7, frameon=False)
