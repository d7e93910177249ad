"""How good stolen images are: each is compared with the true image it is nearest to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vitrail.errors import DataError

_LEAST = 1e-10  # a mean squared error below is that of equal images: 100 dB
_BLOCK = 64


@dataclass(frozen=True)
class Score:
    """One recovered image: which true image it was taken for, and how near it is to it.

    `identified` says whether, among the site's images and those of others, its own is nearest.
    """

    truth: int
    mse: float
    psnr: float
    ssim: float
    identified: bool

    def to_json(self) -> dict[str, float | int | bool]:
        """As JSON values."""
        return dict(vars(self))


def psnr(mse: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB for pixels from 0 to 1: 10 log10(MAX^2 / MSE), MAX = 1."""
    return -10 * mse.clamp_min(_LEAST).log10()


def compute_pairwise_mse(recovered: Tensor, truth: Tensor) -> Tensor:
    """The mean squared error of every pair, [n, m]."""
    a, b = recovered.flatten(1).double(), truth.flatten(1).double()
    size = max(1, _BLOCK * 256 // len(b))
    rows = [(a[at : at + size, None] - b).square().mean(2) for at in range(0, len(a), size)]
    return torch.cat(rows)


def ssim(recovered: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity (Wang et al. 2004) of pairs, the mean over channels."""
    height, width = recovered.shape[-2:]
    side = min(11, height if height % 2 else height - 1, width if width % 2 else width - 1)
    values: Tensor = _import_torchmetrics()(
        recovered.float(),
        truth.float(),
        data_range=1.0,
        kernel_size=max(1, side),
        reduction="none",
    )
    return values.view(-1)


@cache
def _import_torchmetrics() -> Any:
    """Imported where it is used: it takes seconds, and most commands do without."""
    from torchmetrics.functional.image import structural_similarity_index_measure

    return structural_similarity_index_measure


def score_images(recovered: Tensor, truth: Tensor, others: Tensor | None = None) -> list[Score]:
    """Scores of recovered images [n, C, H, W] against a site's images [m, C, H, W].

    Which is which is chosen so that the errors add up to the least: an attacker who knows
    neither the order nor the number of images is given the benefit of the doubt.
    """
    if len(recovered) > len(truth):
        raise DataError(f"{len(recovered)} images were recovered from a site that has {len(truth)}")
    if recovered.shape[1:] != truth.shape[1:]:
        raise DataError(
            f"images {tuple(recovered.shape[1:])} are compared with {tuple(truth.shape[1:])}"
        )
    if not bool(torch.isfinite(recovered).all()):
        raise DataError("a recovered image has pixels that are no numbers")
    errors = compute_pairwise_mse(recovered, truth)
    rows, columns = linear_sum_assignment(errors.numpy())
    return _make_scores(recovered, truth, others, errors, rows.tolist(), columns.tolist())


def score_pairs(recovered: Tensor, truth: Tensor, others: Tensor | None = None) -> list[Score]:
    """Scores of images of which it is known what each should be: the one of the same number."""
    if recovered.shape != truth.shape:
        raise DataError(f"images {tuple(recovered.shape)} are compared with {tuple(truth.shape)}")
    at = list(range(len(recovered)))
    return _make_scores(recovered, truth, others, compute_pairwise_mse(recovered, truth), at, at)


def _make_scores(
    recovered: Tensor,
    truth: Tensor,
    others: Tensor | None,
    errors: Tensor,
    rows: list[int],
    columns: list[int],
) -> list[Score]:
    """Each found image of `rows` beside the true one of `columns`."""
    rest = compute_pairwise_mse(recovered, others) if others is not None and len(others) else None
    likeness = ssim(recovered[rows], truth[columns])
    scores = []
    for at, (row, column) in enumerate(zip(rows, columns, strict=True)):
        error = errors[row, column]
        nearest = bool(errors[row].argmin() == column)
        if rest is not None:
            nearest = nearest and bool(error < rest[row].min())
        scores.append(
            Score(
                truth=column,
                mse=float(error),
                psnr=float(psnr(error)),
                ssim=float(likeness[at]),
                identified=nearest,
            )
        )
    return scores
