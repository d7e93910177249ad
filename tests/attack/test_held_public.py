"""Attacks may use the public images that a run gave to its server."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from vitrail.attack.run_attacks import _find_public_file
from vitrail.config import parse


@pytest.mark.parametrize(
    ("public", "file"),
    [
        (None, None),
        ({"source": "embedded"}, None),  # drawn, so there is no file to read
        ({"source": "npz", "path": "public.npz"}, Path("public.npz")),
    ],
)
def test_the_servers_own_public_images_are_found(public, file):
    data = {} if public is None else {"public": public}
    assert _find_public_file(SimpleNamespace(config=parse({"data": data}).config)) == file
