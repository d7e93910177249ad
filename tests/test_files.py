"""Files are whole or not there, and names cannot leave their folder."""

import json
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitrail import files
from vitrail.errors import RunError


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_json(path, {"old": 1})

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="disk is full"):
        files.write_json(path, {"new": 2})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_nan_is_not_json(tmp_path):
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not list(tmp_path.iterdir())


def test_tensors_come_back_with_their_header(tmp_path):
    tensors = {
        "a": torch.arange(6.0).view(2, 3).t(),
        "empty": torch.empty(0, 4),
        "one": torch.tensor(7),
    }
    files.write_tensors(tmp_path / "t.safetensors", tensors, {"round": 3, "sites": ["ü"]})
    found, meta = files.read_tensors(tmp_path / "t.safetensors")
    assert meta == {"round": 3, "sites": ["ü"]}
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    (tmp_path / "bad.safetensors").write_bytes(b"rubbish")
    with pytest.raises(RunError):
        files.read_tensors(tmp_path / "bad.safetensors")


@given(st.text(max_size=300))
def test_any_name_becomes_one_plain_file_name(name):
    found = files.make_folder_name(name)
    assert found not in ("", ".", "..") and "/" not in found and "\x00" not in found
    assert len(found.encode()) <= 128 and not found.startswith(".")


def test_different_names_do_not_meet():
    names = ["../../x", "..-..-x", "x", "X ", "a/b", "a-b", "é", "è", "", "n" * 200, "n" * 201]
    assert len({files.make_folder_name(name) for name in names}) == len(names)
