"""Keys and certificates: made with sane permissions, refused with a reason."""

from __future__ import annotations

import datetime
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from vitrail.cli.flower import flower
from vitrail.errors import ConfigError, RunError
from vitrail.flower.coordinator.server_command import ServerSettings
from vitrail.flower.keys import Keys, find_certificate_problems, make_keys
from vitrail.flower.node_key import fingerprint_key, make_node_key, read_public
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.preflight import examine


def test_private_keys_are_private_and_never_overwritten(tmp_path) -> None:
    keys = make_keys(tmp_path / "keys", ["a", "../b"], ["localhost"])
    private = [p for p in keys.folder.rglob("*") if p.suffix == ".key"]
    assert len(private) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in private)
    assert all(keys.folder in path.parents for path in private)  # whatever a site is called
    assert find_certificate_problems(keys.certificate, keys.authority, keys.private) == []
    with pytest.raises(RunError, match="not empty"):
        make_keys(tmp_path / "keys", ["a"], ["localhost"])


@pytest.mark.parametrize("sites, hosts, days", [([], ["h"], 1), (["a", "a"], ["h"], 1)])
def test_a_federation_without_proper_names_gets_no_keys(sites, hosts, days, tmp_path) -> None:
    with pytest.raises(ConfigError):
        make_keys(tmp_path / "keys", sites, hosts, days)


def test_foreign_swapped_loose_and_missing_keys_are_told_apart(tmp_path) -> None:
    ours = make_keys(tmp_path / "ours", ["a"], ["localhost"])
    theirs = make_keys(tmp_path / "theirs", ["a"], ["localhost"])
    assert "not signed" in find_certificate_problems(ours.certificate, theirs.authority)[0]
    assert (
        "does not belong"
        in find_certificate_problems(ours.certificate, ours.authority, theirs.private)[0]
    )
    assert "cannot be read" in find_certificate_problems(tmp_path / "none.pem", ours.authority)[0]
    ours.private.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read"):
        ServerSettings(keys=ours).check()
    ours.private.unlink()
    with pytest.raises(ConfigError, match=r"no server\.key"):
        ServerSettings(keys=ours).check()


def test_an_expired_certificate_is_refused(tmp_path, monkeypatch) -> None:
    keys = make_keys(tmp_path / "keys", ["a"], ["localhost"], days=1)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2)
    monkeypatch.setattr("vitrail.flower.keys._now", lambda: later)
    assert "expired" in find_certificate_problems(keys.certificate, keys.authority)[0]
    with pytest.raises(ConfigError, match="expired"):
        ServerSettings(keys=Keys(keys.folder)).check()


def test_check_says_what_is_wrong_without_sending_anything(birds, tmp_path) -> None:
    home = birds.home("north", tmp_path)
    keys = make_keys(tmp_path / "keys", ["north"], ["localhost"])
    good = examine(None, home.file, None, keys.site("north"))
    assert all(line.good for line in good), good
    bad = examine("localhost:1", home.file, tmp_path / "none.toml", tmp_path)
    assert {line.what for line in bad if not line.good} >= {"federation", "server", "private key"}


def test_a_site_that_made_its_own_key_never_hands_over_the_private_half(tmp_path) -> None:
    """Refuted by a private half of north in what the coordinator has."""
    public = make_node_key(tmp_path / "north")
    secret = (tmp_path / "north" / "node.key").read_bytes()
    assert (tmp_path / "north" / "node.key").stat().st_mode & 0o077 == 0
    sent = tmp_path / "north.pub"
    sent.write_bytes(public.read_bytes() + b" a comment\n")
    keys = make_keys(tmp_path / "keys", ["north", "east"], ["localhost"], own={"north": sent})
    assert keys.public("north").read_bytes() == public.read_bytes()
    assert not (keys.site("north") / "node.key").exists()
    assert (keys.site("east") / "node.key").exists()
    files = [path for path in keys.folder.rglob("*") if path.is_file()]
    private = {str(p.relative_to(keys.folder)) for p in files if b"PRIVATE" in p.read_bytes()}
    assert private == {"authority/ca.key", "server/server.key", "sites/east/node.key"}
    shutil.copytree(keys.site("north"), tmp_path / "north", dirs_exist_ok=True)
    signed = NodeSigner(tmp_path / "north").sign(b"this")
    assert NodeSigner(keys.site("east")).accepts("north", b"this", signed)
    assert not NodeSigner(keys.site("east")).accepts("north", b"that", signed)
    said = {line.what: line for line in examine(None, None, None, tmp_path / "north")}
    assert all(line.good for line in said.values())
    assert said["key of north"].says == fingerprint_key(public.read_bytes())
    with pytest.raises(RunError, match="already"):
        make_node_key(tmp_path / "north")
    assert (tmp_path / "north" / "node.key").read_bytes() == secret


def _other_curve() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)


@pytest.mark.parametrize("content", [None, b"", b"rubbish", b"ssh-rsa AAAA", _other_curve()])
def test_what_is_no_public_key_is_refused_before_anything_is_made(content, tmp_path) -> None:
    file = tmp_path / "north.pub"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="public key"):
        make_keys(tmp_path / "keys", ["north"], ["localhost"], own={"north": file})
    assert not (tmp_path / "keys").exists()


def test_a_private_key_sent_by_mistake_and_a_key_sent_twice_are_refused(tmp_path) -> None:
    public = make_node_key(tmp_path / "north")
    for own in (
        {"north": tmp_path / "north" / "node.key"},
        {"north": public, "east": public},
    ):
        with pytest.raises(ConfigError, match="public key"):
            make_keys(tmp_path / "keys", list(own), ["localhost"], own=own)
    assert not (tmp_path / "keys").exists()


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_the_fingerprint_is_that_of_openssh(tmp_path) -> None:
    public = make_node_key(tmp_path)
    said = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True).stdout
    assert fingerprint_key(read_public(public)) in said.split()


def test_the_commands_of_both_sides_go_together(tmp_path) -> None:
    run = CliRunner().invoke
    made = run(flower, ["keys", "site", str(tmp_path / "north")])
    assert made.exit_code == 0 and "SHA256:" in made.output
    words = ["keys", "init", str(tmp_path / "keys"), "--host", "localhost", "--site", "east"]
    bad = run(flower, [*words, "--public", "north"])
    assert isinstance(bad.exception, ConfigError) and not (tmp_path / "keys").exists()
    good = run(flower, [*words, "--public", f"north={tmp_path / 'north' / 'node.pub'}"])
    assert good.exit_code == 0 and "beside the key it made" in good.output
    assert ServerSettings(keys=Keys(tmp_path / "keys")).list_sites() == ["east", "north"]
