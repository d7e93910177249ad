"""The area under the curve against counting pairs, and against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from vitrail.metrics.ranking import auc


@pytest.mark.parametrize("digits", [0, 1, 8])
def test_it_is_the_share_of_pairs_in_the_right_order(digits):
    draw = np.random.default_rng(digits)
    positive, negative = draw.normal(0.5, 1, 50).round(digits), draw.normal(0, 1, 70).round(digits)
    pairs = [(p > n) + (p == n) / 2 for p in positive for n in negative]
    assert auc(positive, negative) == pytest.approx(sum(pairs) / len(pairs))
    truth = [1] * 50 + [0] * 70
    assert auc(positive, negative) == pytest.approx(roc_auc_score(truth, [*positive, *negative]))


def test_known_values_and_nobody_to_compare_with():
    assert auc([3.0, 1.0], [1.0, 0.0]) == 0.875
    assert auc([1.0], [1.0]) == 0.5 and auc([0.0], [1.0]) == 0.0
    assert np.isnan(auc([], [1.0])) and np.isnan(auc([1.0], []))
