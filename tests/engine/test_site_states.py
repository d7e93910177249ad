"""The states of a site by round: which are deleted, and which are the site's to keep."""

from __future__ import annotations

import torch

from vitrail.engine.storage.site_folder import SiteFolder


def list_rounds(folder: SiteFolder) -> list[int]:
    return sorted(int(path.stem[-5:]) for path in (folder.path / "state").iterdir())


def save(folder: SiteFolder, round_: int, base: int) -> None:
    folder.save(round_, {"own/head": torch.full((2,), float(round_))}, base)


def test_states_that_the_newest_one_was_built_on_are_deleted(tmp_path) -> None:
    folder = SiteFolder(tmp_path, "east")
    for round_ in range(1, 5):
        save(folder, round_, round_ - 1)
        folder.prune(round_ - 1)
    assert list_rounds(folder) == [3, 4]


def test_a_state_that_was_refused_is_deleted_too(tmp_path) -> None:
    """Round 2 was refused, so round 3 builds on 1: as many turns as the one that is given up."""
    folder = SiteFolder(tmp_path, "east")
    for round_, base in ((1, 0), (2, 1), (3, 1), (4, 3)):
        save(folder, round_, base)
    folder.prune(4)
    assert list_rounds(folder) == [4]


def test_a_server_that_has_a_site_begin_anew_does_not_make_it_forget(tmp_path) -> None:
    folder = SiteFolder(tmp_path, "east")
    for round_, base in ((1, 0), (2, 1), (3, 2), (4, 0), (5, 4)):
        save(folder, round_, base)
    folder.prune(5)
    assert list_rounds(folder) == [3, 5]
    assert folder.load(3)["own/head"].tolist() == [3.0, 3.0]
    for round_ in range(6, 9):  # until the new one has learned as long
        save(folder, round_, round_ - 1)
        folder.prune(round_)
    assert list_rounds(folder) == [8]


def test_states_from_before_turns_were_counted_are_deleted_as_ever(tmp_path) -> None:
    from vitrail.files import write_tensors

    folder = SiteFolder(tmp_path, "east")
    for round_ in (1, 2, 3):
        write_tensors(folder._state(round_), {"x": torch.zeros(1)}, {"round": round_})
    folder.prune(3)
    assert list_rounds(folder) == [3]
    folder.prune(0)
    assert list_rounds(folder) == [3]
