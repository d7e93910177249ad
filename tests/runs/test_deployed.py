"""A loaded model takes pixels, and says so when it is given something else."""

import pytest
import torch

from vitrail.errors import DataError


@pytest.fixture
def model(tiny):
    return tiny(run={"rounds": 0}, partition={"sites": 2}).model()


def test_bytes_and_floats_of_the_same_pixels_give_the_same_logits(model):
    pixels = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(model(pixels), model(pixels.float() / 255))
    assert model(torch.empty(0, 3, 16, 16)).shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda x: x * 255, "from 0 to 255"),
        (lambda x: (x - 0.5) / 0.25, "from -2 to 2"),
        (lambda x: x * float("nan"), "from nan to nan"),
    ],
    ids=["0 to 255", "normalized", "nan"],
)
def test_floats_that_are_no_pixels_are_refused(model, change, found):
    pixels = torch.linspace(0, 1, 3 * 16 * 16).view(1, 3, 16, 16)
    with pytest.raises(DataError, match=f"must lie between 0 and 1.*{found}.*Divide"):
        model(change(pixels))
    with pytest.raises(DataError):
        model.probabilities(change(pixels))
