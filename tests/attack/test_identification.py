"""Do recovered images find their site by more than luck? Against enumeration, and with noise."""

from itertools import combinations

import pytest
import torch

from vitrail.attack.findings import Findings, Row
from vitrail.attack.identification import (
    Draw,
    compute_null,
    judge_identification,
    judge_pairs,
    list_draws,
)
from vitrail.attack.image_scores import Score, score_images
from vitrail.attack.threat_model import ThreatModel
from vitrail.report.pages.attack_table import format_cells


def draw_images(count, seed):
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def judge(recovered, own, others, labels=None, other_labels=None):
    labels = torch.zeros(len(own), dtype=torch.int64) if labels is None else labels
    if other_labels is None:
        other_labels = torch.zeros(len(others), dtype=torch.int64)
    return judge_identification(*list_draws(recovered, own, labels, others, other_labels))


def test_the_null_is_that_of_all_ways_to_choose_the_sites_images():
    draw = Draw(candidates=7, own=3, nearest=(2, 1, 1))
    counts = [0.0] * 5
    ways = list(combinations(range(7), 3))
    for chosen in ways:
        counts[sum(n for at, n in enumerate(draw.nearest) if at in chosen)] += 1 / len(ways)
    assert compute_null(draw).tolist() == pytest.approx(counts)


def test_noise_is_identified_half_of_the_time_and_the_test_is_not_impressed():
    own, others = draw_images(100, 1), draw_images(100, 2)
    shares, p_values = [], []
    for seed in range(30):
        noise = draw_images(8, 10 + seed)
        shares.append(sum(s.identified for s in score_images(noise, own, others)) / 8)
        p_values.append(judge(noise, own, others).p_value)
    assert sum(shares) / 30 > 0.3  # what used to read like a success
    assert judge(noise, own, others).chance == pytest.approx(0.5)
    assert sum(p <= 0.05 for p in p_values) <= 4


def test_real_reconstructions_are_more_than_luck():
    own, others = draw_images(20, 1), draw_images(200, 2)
    result = judge(own[:8] + 0.02 * draw_images(8, 3), own, others)
    assert result.found == 8 and result.p_value < 1e-6


def test_a_site_known_by_its_class_alone_is_no_identification():
    """A class that nobody else has is found whenever the class is known."""
    own, others = draw_images(10, 1), draw_images(100, 2)
    other_labels = torch.ones(100, dtype=torch.int64)
    assert judge(own[:4], own, others, other_labels=other_labels) is None


def test_pairs_have_one_right_candidate():
    result = judge_pairs(2, 4, 100)
    assert result.chance == 0.01 and result.p_value == pytest.approx(5.9e-4, rel=0.02)
    assert judge_pairs(0, 4, 100).p_value == 1.0 and judge_pairs(0, 0, 100) is None


def test_a_table_says_chance_known_labels_and_an_early_end():
    own, others = draw_images(8, 1), draw_images(8, 2)
    scores = (Score(0, 0.1, 10.0, 0.1, True), Score(1, 0.1, 10.0, 0.1, False))
    row = Row(
        "ig", scores, ThreatModel(), label_recovery=0.5, iterations=15, planned=1000,
        identification=judge(draw_images(2, 5), own, others),
    )  # fmt: skip
    cells = format_cells(row)
    assert cells[4].startswith("50 %, chance 50 %, p = ")
    assert cells[5] == "known (50 % can be inferred)" and cells[6] == "15 of 1,000"
    assert any("ended it at 15 of 1,000 steps" in line for line in Findings((row,)).lines())
