"""Keys and certificates: made with sane permissions, refused with a reason."""

from __future__ import annotations

import datetime

import pytest

from vitrail.errors import ConfigError, RunError
from vitrail.flower.check import examine
from vitrail.flower.keys import Keys, make_keys, problems_of
from vitrail.flower.serve import Server


def test_private_keys_are_private_and_never_overwritten(tmp_path) -> None:
    keys = make_keys(tmp_path / "keys", ["a", "../b"], ["localhost"])
    private = [p for p in keys.folder.rglob("*") if p.suffix == ".key"]
    assert len(private) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in private)
    assert all(keys.folder in path.parents for path in private)  # whatever a site is called
    assert problems_of(keys.certificate, keys.authority, keys.private) == []
    with pytest.raises(RunError, match="not empty"):
        make_keys(tmp_path / "keys", ["a"], ["localhost"])


@pytest.mark.parametrize("sites, hosts, days", [([], ["h"], 1), (["a", "a"], ["h"], 1)])
def test_a_federation_without_proper_names_gets_no_keys(sites, hosts, days, tmp_path) -> None:
    with pytest.raises(ConfigError):
        make_keys(tmp_path / "keys", sites, hosts, days)


def test_foreign_swapped_loose_and_missing_keys_are_told_apart(tmp_path) -> None:
    ours = make_keys(tmp_path / "ours", ["a"], ["localhost"])
    theirs = make_keys(tmp_path / "theirs", ["a"], ["localhost"])
    assert "not signed" in problems_of(ours.certificate, theirs.authority)[0]
    assert "does not belong" in problems_of(ours.certificate, ours.authority, theirs.private)[0]
    assert "cannot be read" in problems_of(tmp_path / "none.pem", ours.authority)[0]
    ours.private.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read"):
        Server(keys=ours).check()
    ours.private.unlink()
    with pytest.raises(ConfigError, match=r"no server\.key"):
        Server(keys=ours).check()


def test_an_expired_certificate_is_refused(tmp_path, monkeypatch) -> None:
    keys = make_keys(tmp_path / "keys", ["a"], ["localhost"], days=1)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2)
    monkeypatch.setattr("vitrail.flower.keys._now", lambda: later)
    assert "expired" in problems_of(keys.certificate, keys.authority)[0]
    with pytest.raises(ConfigError, match="expired"):
        Server(keys=Keys(keys.folder)).check()


def test_check_says_what_is_wrong_without_sending_anything(birds, tmp_path) -> None:
    home = birds.home("north", tmp_path)
    keys = make_keys(tmp_path / "keys", ["north"], ["localhost"])
    good = examine(None, home.file, None, keys.site("north"))
    assert all(line.good for line in good), good
    bad = examine("localhost:1", home.file, tmp_path / "none.toml", tmp_path)
    assert {line.what for line in bad if not line.good} >= {"federation", "server", "private key"}
