"""Whether a difference between heads holds over draws of the partition, not over images alone.

Every row is frozen as the heads table froze it; for each draw of who holds which image, and each
fold of it, rows are compared on the same images; the differences of the draws make the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from experiments.tables.heads_results import HeadsResults, gather_answers
from experiments.tables.heads_table import build_heads_table, name_partition
from experiments.tables.heads_text import Key, compare_keys
from experiments.tables.markdown import to_markdown
from vitrail.config.load import Loaded
from vitrail.sweep.cells import make_cells
from vitrail.sweep.tables import TABLES, OnCell
from vitrail.sweep.tune import read_tune_config

RESULTS = "results.jsonl"


@TABLES.register("heads-partitions")
def build_partitions_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Play what is missing, and compare every row with the first one, draw by draw."""
    build_heads_table(grid, folder, on_cell)
    names = list(dict.fromkeys(name_partition(cell.loaded) for cell in make_cells(grid)))
    first, *others = read_tune_config(grid).rows
    results = HeadsResults.open(folder / RESULTS)
    rows = []
    for row in others:
        for model in ("global", "prior", "head"):
            differences = compare_draws(results, names, (row, model), (first, model))
            if differences:
                rows.append([row, model, *format_draws(differences)])
    head = ["row", "model", f"points over {first}, draw by draw", "mean [95 % over draws]"]
    return to_markdown(head, rows)


def compare_draws(
    results: HeadsResults, partitions: Sequence[str], key: Key, other: Key
) -> list[float]:
    """The difference of two models in points, for each draw that both were tested on."""
    differences = []
    for name in partitions:
        compared = compare_keys(gather_answers(results, name), key, other)
        if compared is not None:
            differences.append(100 * compared.difference)
    return differences


def format_draws(differences: Sequence[float]) -> list[str]:
    """The differences, and their mean with Student's interval, which needs two of them."""
    each, mean = ", ".join(f"{d:+.1f}" for d in differences), float(np.mean(differences))
    if len(differences) < 2:
        return [each, f"{mean:+.1f}"]
    error = float(np.std(differences, ddof=1)) / math.sqrt(len(differences))
    reach = float(stats.t.ppf(0.975, len(differences) - 1)) * error
    return [each, f"{mean:+.1f} [{mean - reach:+.1f}, {mean + reach:+.1f}]"]
