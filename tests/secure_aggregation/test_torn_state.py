"""A state that cannot be read is no fresh start: what a site confirmed must not be forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.secure_aggregation.rehearsed_link import make_link

from vitrail.errors import RunError
from vitrail.secure_aggregation.round_state import STATE_FILE, StateFile
from vitrail.secure_aggregation.steps import KeyRequest

pytest.importorskip("cryptography")


@pytest.mark.parametrize("cut", [0, 1, 300, -1], ids=["empty", "one byte", "part", "last byte"])
def test_a_torn_state_is_refused_in_one_sentence(tmp_path, cut) -> None:
    """It counted as none: the site gave fresh keys for a round whose sum it had confirmed, and
    forgot among whom the round began."""
    link = make_link(3)
    site = next(iter(link.sites))
    steps = replace(link.sites[site], store=StateFile(tmp_path))
    assert steps.answer(KeyRequest(site, 1, 1, "digest")).keys  # no file is a fresh start
    state = steps.store.load()
    steps.store.save(replace(state, survivors=sorted(link.sites), unmasked=True))
    assert "confirmed already" in steps.answer(KeyRequest(site, 1, 2, "digest")).withheld
    file = tmp_path / STATE_FILE
    torn = file.read_bytes()[:cut]
    file.write_bytes(torn)
    for act in (
        lambda: steps.answer(KeyRequest(site, 1, 2, "digest")),
        lambda: steps.store.close(1),  # an earlier round than it was in would be opened again
    ):
        with pytest.raises(RunError, match=f"{STATE_FILE}.* cannot be read") as refused:
            act()
        assert "\n" not in str(refused.value)
        assert file.read_bytes() == torn
