"""Heads of ledgers in a federation: signed, countersigned, never rolled back; backups noticed."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from vitrail.cli.app import app
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.tasks import MissingReply
from vitrail.errors import RunError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.coordinator.head_keeper import HeadKeeper
from vitrail.flower.envelope import OpenedMessage, compute_message_id, seal, unseal
from vitrail.flower.key_roll import revoke_site, rotate_site
from vitrail.flower.keys import Keys, make_keys
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.renew_certificate import rotate_server
from vitrail.flower.site.ledger_witness import LedgerWitness
from vitrail.flower.site.site_errors import Refusal
from vitrail.flower.site.site_server import SiteServer
from vitrail.release.ledger import Ledger
from vitrail.release.ledger_chain import walk_chain
from vitrail.release.ledger_heads import HEADS_FILE, HeadFile, KeptHead

SITES = ("east", "north", "west")
TERMS = {"run": {"rounds": 2, "batch_size": 8, "seed": 5, "local_reference": False}}


@dataclass
class Made:
    root: Path
    keys: Keys

    @property
    def run(self) -> Path:
        return self.root / "run"

    def site(self, name: str = "north") -> Path:
        return next((self.root / f"at-{name}").glob("runs/*"))

    def ledger(self, name: str = "north") -> Path:
        return self.site(name) / "sites" / name / "ledger.jsonl"


@pytest.fixture(scope="module")
def signed(birds, tmp_path_factory) -> Made:
    """A finished federation in one process whose sites and coordinator have keys."""
    root = tmp_path_factory.mktemp("signed")
    keys = make_keys(root / "keys", SITES, ["localhost"])
    loop = birds.loop(root)
    for name in SITES:
        loop.stations[name] = SiteServer(birds.home(name, root), True, NodeSigner(keys.site(name)))
    run_federation(loop, birds.coordinator(**TERMS), root / "run", 3, keys=keys)
    return Made(root, keys)


@pytest.fixture
def made(signed, tmp_path) -> Made:
    """A copy to spoil."""
    shutil.copytree(signed.root, tmp_path / "copy")
    return Made(tmp_path / "copy", Keys(tmp_path / "copy" / "keys"))


def verify(*words):
    return CliRunner().invoke(app, ["ledger", *map(str, words), "--verify"])


def why(*words) -> str:
    result = verify(*words)
    assert result.exit_code == 1 and isinstance(result.exception, RunError), result.output
    return str(result.exception)


def test_both_ends_verify_what_was_written(signed):
    at_site = verify(signed.site(), "--keys", signed.keys.site("north"))
    assert at_site.exit_code == 0, at_site.output
    lines = len(signed.ledger().read_text().splitlines())
    assert f"north: {lines} lines, all chained" in at_site.output
    assert f"north: 3 heads up to line {lines}, signed by the key SHA256:" in at_site.output
    at_server = verify(signed.run, "--keys", signed.keys.folder)
    assert at_server.exit_code == 0, at_server.output
    assert at_server.output.count(": 3 heads up to line") == 3
    assert at_server.output.count("countersigned by the certificate SHA256:") == 3
    crossed = verify(signed.site(), "--heads", signed.run / "server" / HEADS_FILE)
    assert crossed.exit_code == 0 and "3 heads" in crossed.output


def rechain(path: Path, keep: int) -> None:
    """Write the ledger anew after some lines, with good hashes: a forger who knows the format."""
    lines = Ledger(path).lines()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))
    for line in lines[keep:]:
        Ledger(path).write({**line, "bytes": 1})


def test_a_ledger_that_was_cut_or_written_anew_does_not_hold(made):
    path = made.ledger()
    whole = path.read_bytes()
    rows = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:-1]))
    assert f"lines after {len(rows) - 1} are missing" in why(made.site())
    path.write_bytes(whole)
    rechain(path, 3)
    assert walk_chain(path).problem == ""
    assert "were written anew" in why(made.site())
    (path.parent / HEADS_FILE).unlink()  # the forger takes the site's own heads away as well
    assert verify(made.site()).exit_code == 0
    assert "were written anew" in why(made.site(), "--heads", made.run / "server" / HEADS_FILE)


def edit_heads(path: Path, change) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in change(rows)))


SPOILED = {
    "hash": (lambda r: [{**r[0], "hash": "0" * 64}, *r[1:]], "is not signed by the site"),
    "round": (lambda r: [{**r[0], "round": 9}, *r[1:]], "is not signed by the site"),
    "unsigned": (lambda r: [{**r[0], "signature": ""}, *r[1:]], "is not signed by the site"),
    "counter": (
        lambda r: [{**r[0], "countersignature": r[1]["countersignature"]}, *r[1:]],
        "is not countersigned",
    ),
    "nonsense": (lambda r: [{"a": 1}, *r[1:]], "is no head of a ledger"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_heads_that_were_touched_do_not_verify(how, made):
    change, said = SPOILED[how]
    edit_heads(made.run / "server" / HEADS_FILE, change)
    assert said in why(made.run)


def test_foreign_keys_do_not_verify(made, tmp_path):
    others = make_keys(tmp_path / "others", SITES, ["localhost"])
    assert "of another authority" in why(made.site(), "--keys", others.site("north"))
    made.keys.public("north").write_bytes(others.public("north").read_bytes())
    assert "never this site's" in why(made.run, "--keys", made.keys.folder)


def test_without_keys_heads_travel_unsigned_and_say_so(birds, tmp_path):
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(**TERMS), tmp_path / "run", 3)
    found = verify(tmp_path / "run")
    assert found.exit_code == 0 and found.output.count("unsigned: this federation had no") == 3
    site = next((tmp_path / "at-north").glob("runs/*"))
    assert "unsigned" in verify(site).output


def test_a_restored_backup_is_noticed_on_both_ends(birds, tmp_path):
    """The folder of a site is put back to what it was after round 1, while the run goes on."""
    loop = birds.loop(tmp_path)
    backup, folder, turns = tmp_path / "backup", tmp_path / "at-north", []

    def restore(raw, reply):
        if unseal(raw).kind == "turn":
            turns.append(raw)
        if len(turns) == 1 and not backup.exists():
            shutil.copytree(folder, backup)
        if len(turns) == 2 and folder.exists() and not (folder / "restored").exists():
            shutil.rmtree(folder)
            shutil.copytree(backup, folder)
            (folder / "restored").touch()
            loop.stations["north"] = SiteServer(birds.home("north", tmp_path), seeded=True)
        return reply

    loop.spoil["north"] = restore
    terms = {"run": {**TERMS["run"], "rounds": 3}}
    run_federation(loop, birds.coordinator(**terms), tmp_path / "run", 3)
    said = "in round 2 (line"
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "round 3: without north: it says: the head that was countersigned" in log
    assert said in log and "restored from a backup" in log
    site = next(folder.glob("runs/*"))
    assert "restored from a backup" in (site / "log.txt").read_text()
    assert why(site, "--heads", tmp_path / "run" / "server" / HEADS_FILE)


def reply(**ledger) -> OpenedMessage:
    return OpenedMessage("turn", "run", "north", {"ledger": ledger}, {})


def test_the_coordinator_takes_no_head_that_went_back_even_after_it_went_back_itself(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.server.mkdir(parents=True)
    keeper = HeadKeeper(folder, "run")
    assert keeper.make_content("north") == {}
    assert not isinstance(keeper.receive("north", 1, reply(lines=5, hash="a" * 64)), MissingReply)
    again = HeadKeeper(folder, "run")  # a new process, at an older checkpoint
    assert again.make_content("north")["countersigned"]["lines"] == 5
    for lines, digit in ((4, "b"), (5, "b")):
        refused = again.receive("north", 1, reply(lines=lines, hash=digit * 64))
        assert isinstance(refused, MissingReply) and "backup" in refused.reason
    assert "refused a message of north" in folder.log_file.read_text()
    again.receive("north", 1, reply(lines=5, hash="a" * 64))  # asked again: nothing new
    again.receive("north", 2, reply(lines=7, hash="c" * 64))
    assert [head.lines for head in HeadFile(folder.server / HEADS_FILE).read()] == [5, 7]
    for rubbish in (None, {}, {"lines": -1, "hash": "a" * 64}, {"lines": 9, "hash": "x"}):
        message = OpenedMessage("turn", "run", "north", {"ledger": rubbish}, {})
        assert isinstance(again.receive("north", 3, message), MissingReply)


def test_with_keys_a_head_needs_the_sites_signature(signed, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.server.mkdir(parents=True)
    keeper = HeadKeeper(folder, "run", signed.keys)
    site = SiteFolder(tmp_path, "north")
    site.ledger().write({"kind": "enroll"})
    told = LedgerWitness(site, "run", NodeSigner(signed.keys.site("north"))).tell(1)
    forged = LedgerWitness(site, "run", NodeSigner(signed.keys.site("east"))).tell(1)
    for round_, body in ((1, forged), (2, told), (1, LedgerWitness(site, "run").tell(1))):
        refused = keeper.receive("north", round_, OpenedMessage("turn", "run", "north", body, {}))
        assert (
            isinstance(refused, MissingReply) and "not signed with its node key" in refused.reason
        )
    assert keeper.receive("north", 1, OpenedMessage("turn", "run", "north", told, {})).body == told


def test_heads_before_and_after_a_new_key_verify(made):
    """A site's key changes in the middle of a run, and the certificate too."""
    keeper_run = HeadFile(made.run / "server" / HEADS_FILE).read()[0].run
    rotate_site(made.keys, "north")
    rotate_server(made.keys, (), 30)
    site = SiteFolder(made.site(), "north")
    site.ledger().write({"kind": "release", "round": 4, "message": "m"})
    keeper = HeadKeeper(RunFolder(made.run), keeper_run, made.keys)
    witness = LedgerWitness(site, keeper_run, NodeSigner(made.keys.site("north")), strict=True)
    body = witness.tell(4)
    assert not isinstance(
        keeper.receive("north", 4, OpenedMessage("turn", keeper_run, "north", body, {})),
        MissingReply,
    )
    witness.take(KeptHead(**keeper.make_content("north")["countersigned"]))
    for words in (
        (made.run, "--keys", made.keys.folder),
        (made.site(), "--keys", made.keys.site("north")),
    ):
        found = verify(*words)
        assert found.exit_code == 0 and "north: 4 heads" in found.output, found.output
        signers = next(line for line in found.output.splitlines() if "north: 4 heads" in line)
        assert signers.count("SHA256:") == 2
    revoke_site(made.keys, "north")
    refused = keeper.receive("north", 5, OpenedMessage("turn", keeper_run, "north", body, {}))
    assert isinstance(refused, MissingReply) and "no longer accepted" in refused.reason
    assert verify(made.run, "--keys", made.keys.folder).exit_code == 0


def test_a_site_takes_no_head_but_its_own_coordinators(signed, tmp_path):
    others = make_keys(tmp_path / "others", SITES, ["localhost"])
    site = SiteFolder(tmp_path / "site", "north")
    site.ledger().write({"kind": "enroll"})
    kept = {}
    for name, keys in (("ours", signed.keys), ("theirs", others), ("none", None)):
        folder = RunFolder(tmp_path / name)
        folder.server.mkdir(parents=True)
        keeper = HeadKeeper(folder, "run", keys)
        signer = None if keys is None else NodeSigner(keys.site("north"))
        told = LedgerWitness(site, "run", signer).tell(1)
        keeper.receive("north", 1, OpenedMessage("turn", "run", "north", told, {}))
        kept[name] = HeadFile(keeper.file.path).read()[0]
    witness = LedgerWitness(site, "run", NodeSigner(signed.keys.site("north")), strict=True)
    for name in ("theirs", "none"):
        with pytest.raises(Refusal, match="without the signature of the coordinator"):
            witness.take(kept[name])
    with pytest.raises(Refusal, match="another ledger"):
        LedgerWitness(site, "other", witness.signer, strict=True).take(kept["ours"])
    assert not witness.file.path.exists()
    witness.take(kept["ours"])
    witness.take(kept["ours"])
    assert witness.file.read() == [kept["ours"]]
    site.ledger().path.write_bytes(site.ledger().path.read_bytes().replace(b"enroll", b"unroll"))
    with pytest.raises(Refusal, match="line 1 does not fit"):
        witness.take(None)


def test_a_reply_without_a_head_does_not_count(birds, tmp_path):
    loop = birds.loop(tmp_path)

    def mute(raw, answer):
        letter = unseal(answer)
        body = {name: value for name, value in letter.body.items() if name != "ledger"}
        known = compute_message_id(raw)
        return seal(letter.kind, letter.run, letter.site, body, letter.tensors, answers=known)

    loop.spoil["north"] = mute
    run_federation(loop, birds.coordinator(**TERMS), tmp_path / "run", 3)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "refused a message of north: it carries no head of its ledger" in log
