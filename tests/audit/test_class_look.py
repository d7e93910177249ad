"""The look that an audit names is the one that harmonizing measures: the same numbers."""

import numpy as np
import pytest
import torch

from vitrail.audit.class_look import find_look
from vitrail.audit.detection.class_summary import compute_summary
from vitrail.audit.detection.feature_layout import join_units
from vitrail.audit.detection.image_features import make_image_blocks
from vitrail.data.look import compute_look
from vitrail.rng import derive_server_key


@pytest.mark.parametrize("channels", [1, 3])
def test_means_that_sites_told_are_the_look_of_their_images(channels):
    draw = derive_server_key(3).at("look").numpy()
    images = torch.from_numpy(draw.uniform(0, 1, (12, channels, 24, 24))).float()
    blocks = make_image_blocks(images)
    units = join_units(blocks)
    rows = torch.cat([block.values for block in blocks], 1).double().numpy()
    joint = [unit.columns for unit in units if unit.joint]
    labels, tested = np.zeros(12, np.int64), np.array([6])
    summary = compute_summary(rows, labels, tested, 1, 6, joint)
    look = find_look({"here": summary, "there": summary}, units, "here", 0)
    expected = compute_look(images.double()).numpy()
    assert len(look) == len(expected)
    assert np.allclose(look, expected, rtol=2e-3, atol=2e-3)  # told in half precision
    assert find_look({"here": summary}, units, "here", 0) == ()
