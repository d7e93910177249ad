"""What a site keeps is for its own account alone, and lies in its own folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vitrail.data.shared_memory import SITE_CACHE, get_cache_path
from vitrail.engine.federation import Federation
from vitrail.errors import RunError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.preflight import examine
from vitrail.flower.run_terms import make_terms
from vitrail.flower.site.private_files import protect_new_files, repair_permissions
from vitrail.flower.site.resident_process import ResidentProcess
from vitrail.flower.site.site_config import Proposal
from vitrail.flower.terms_digest import digest_terms
from vitrail.flower.versions import list_versions
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation


def list_open(folder: Path) -> list[Path]:
    """What others may read, write or list."""
    found = [folder, *folder.rglob("*")]
    return [path for path in found if not path.is_symlink() and path.stat().st_mode & 0o077]


@pytest.fixture
def loose_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_what_exists_already_is_taken_away_from_others(tmp_path, loose_umask):
    folder, outside = tmp_path / "site", tmp_path / "images"
    (folder / "runs" / "r").mkdir(parents=True)
    (folder / "runs" / "r" / "ledger.jsonl").write_text("line")
    (folder / "script").write_text("x")
    (folder / "script").chmod(0o775)
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    assert repair_permissions(folder) == 5 and list_open(folder) == []
    assert stat.S_IMODE((folder / "script").stat().st_mode) == 0o700
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755  # not the site's to change
    assert repair_permissions(folder) == 0
    protect_new_files()
    (folder / "later").mkdir()
    (folder / "later" / "x").write_text("x")
    assert list_open(folder) == []


def test_a_file_of_another_account_is_said(tmp_path, monkeypatch, loose_umask):
    (tmp_path / "theirs").write_text("x")

    def refuse(path, mode):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(RunError, match="may not change that"):
        repair_permissions(tmp_path)


def test_a_resident_process_keeps_images_and_everything_else_in_the_sites_folder(
    birds, tmp_path, own_cache, loose_umask
):
    config = birds.home("east", tmp_path)
    text = config.file.read_text().replace("[data]", '[data]\ncache = "disk"')
    config.file.write_text(text)
    terms = make_terms(birds.coordinator().config)
    config.decide(Proposal("run", digest_terms(terms), ()), True)
    repair_permissions(config.folder)
    resident = ResidentProcess(config.file, None, True, config.folder / "resident.log", print)
    resident.start()
    try:
        body = {"terms": terms, "versions": list_versions()}
        said = unseal(resident.answer(seal("hello", "run", "east", body)))
    finally:
        resident.stop()
    assert said.kind == "hello", said.body
    assert list_open(config.folder) == []
    cached = {path.suffix for path in (config.folder / SITE_CACHE).iterdir()}
    assert cached == {".pixels", ".json"} and not list(own_cache.iterdir())
    assert (config.folder / "runs" / "run" / "sites" / "east" / "ledger.jsonl").is_file()


def test_a_check_and_a_later_look_at_a_run_use_the_sites_cache(birds, tmp_path, own_cache):
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(), tmp_path / "run", 3)
    site = tmp_path / "at-east"
    run = Run(next(site.glob("runs/*")))
    assert all(line.good for line in examine(None, tmp_path / "east.toml", None, None))
    assert get_cache_path() == site.resolve() / SITE_CACHE and not list(own_cache.iterdir())
    os.environ["VITRAIL_CACHE"] = str(own_cache)
    assert isinstance(load_run_federation(run), Federation)
    assert get_cache_path() == site.resolve() / SITE_CACHE
