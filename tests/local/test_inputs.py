"""What a network is fed: features lie in a file as training reads them, and batches are rows."""

import numpy as np
import pytest
import torch

from vitrail.data.normalize import Normalize
from vitrail.local.inputs import Feed, Inputs, load_features, to_file_layout
from vitrail.rng import derive_server_key

KEY = derive_server_key(5)
COUNT = 6


def inputs(features):
    images = np.zeros((COUNT, 8, 8, 3), np.uint8)
    return Inputs(images, np.arange(COUNT), Normalize.from_name("unit", 3), features=features)


def filed(tmp_path, features):
    """The same features written and mapped as a run does it."""
    file = tmp_path / "features.npy"
    views = [to_file_layout(torch.from_numpy(features[:, v])) for v in range(features.shape[1])]
    np.save(file, np.stack(views, 1))
    return load_features(file)


@pytest.mark.parametrize("shape", [(COUNT, 1, 3, 2, 4), (COUNT, 2, 3, 2, 4), (COUNT, 2, 5)])
def test_a_file_of_features_reads_as_they_were(tmp_path, shape):
    features = KEY.numpy().random(shape, np.float32)
    mapped = filed(tmp_path, features)
    assert mapped.shape == shape and np.array_equal(mapped, features)
    rows, views = np.array([4, 0, 5]), np.array([0, shape[1] - 1, 0])
    for source in (features, mapped):
        found = inputs(source)
        assert found.views == shape[1]
        assert torch.equal(found.plain(rows), torch.from_numpy(features[rows, 0]))
        picked = found.pick_views(source, rows, views)
        assert torch.equal(picked, torch.from_numpy(features[rows, views]))
        assert found.plain(rows[:0]).shape == (0, *shape[2:])
    if len(shape) == 5:
        assert inputs(mapped).plain(rows).permute(0, 2, 3, 1).is_contiguous()  # nothing is moved


@pytest.mark.parametrize("shape", [(COUNT, 1, 3, 2, 4), (COUNT, 3, 3, 2, 4), (COUNT, 1, 5)])
def test_a_batch_is_the_rows_asked_for(tmp_path, shape):
    features = KEY.numpy().random(shape, np.float32)
    rows = np.array([5, 3, 0, 1])
    feed = Feed(inputs(filed(tmp_path, features)), rows, KEY.at("views").torch())
    at = torch.tensor([2, 0, 2])
    x, labels = feed.batch(at)
    assert labels.tolist() == [0, 5, 0]
    views = [np.flatnonzero([np.array_equal(v, one) for v in features[row]])
             for row, one in zip([0, 5, 0], x.numpy(), strict=True)]  # fmt: skip
    assert all(len(found) == 1 for found in views)  # each is one view of its own row
