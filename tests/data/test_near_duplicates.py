import io
import itertools

import numpy as np
import pytest
from PIL import Image, ImageEnhance
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.config import load as load_config
from vitrail.config import parse
from vitrail.data.aviary.birds import draw_birds
from vitrail.data.near_duplicates import (
    LEAST_CORRELATION,
    MOST_BITS,
    find_groups,
    find_near_pairs,
    join_groups,
    make_thumbnail,
)
from vitrail.engine.federation import assemble
from vitrail.engine.members import SimulatedSites
from vitrail.errors import DataError
from vitrail.rng import derive_server_key

BIRDS = draw_birds(60, 3, derive_server_key(4).at("near-test"), 96)


def get_bird(i):
    return Image.fromarray(BIRDS.images[i])


def save_again(picture, quality=60):
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue()))


CHANGES = {
    "saved again": save_again,
    "smaller": lambda picture: picture.resize((64, 64), Image.Resampling.BICUBIC),
    "larger": lambda picture: picture.resize((200, 200), Image.Resampling.BILINEAR),
    "less contrast": lambda picture: ImageEnhance.Contrast(picture).enhance(0.8),
    "grey": lambda picture: picture.convert("L"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_picture_that_was_only_saved_otherwise_is_found(change):
    originals = [make_thumbnail(get_bird(i)) for i in range(20)]
    changed = [make_thumbnail(CHANGES[change](get_bird(i))) for i in range(20)]
    pairs = find_near_pairs(np.stack(originals + changed))
    assert pairs.tolist() == [[i, i + 20] for i in range(20)]


def test_the_search_finds_what_comparing_all_pairs_finds():
    """Bands are a short cut: the oracle writes out hash and correlation of every pair."""
    generator = np.random.default_rng(3)
    base = np.stack([make_thumbnail(get_bird(i)) for i in range(12)]).astype(float)
    noisy = [base + generator.normal(0, scale, base.shape) for scale in (0, 2, 6, 12, 25)]
    thumbnails = np.concatenate(noisy).clip(0, 255).astype(np.uint8)
    signs = [_slow_hash(x) for x in thumbnails]
    wanted = [
        [i, j]
        for i, j in itertools.combinations(range(len(thumbnails)), 2)
        if (signs[i] != signs[j]).sum() <= MOST_BITS
        and np.corrcoef(thumbnails[i].ravel(), thumbnails[j].ravel())[0, 1] >= LEAST_CORRELATION
    ]
    assert 12 < len(wanted) < 120
    assert find_near_pairs(thumbnails).tolist() == wanted


def _slow_hash(thumbnail):
    """cos(pi (x + 1/2) u / 32), summed; the factor of each frequency 0 is 1 / sqrt 2."""
    places = np.arange(32) + 0.5
    waves = np.array([np.cos(np.pi * places * u / 32) for u in range(8)])
    waves[0] /= np.sqrt(2)
    low = (waves @ thumbnail.astype(float) @ waves.T).ravel()[1:]
    return low > np.median(low)


def test_flat_and_no_images_are_nobody_s_copies():
    assert find_near_pairs(np.full((5, 32, 32), 7, np.uint8)).shape == (0, 2)
    assert find_near_pairs(np.empty((0, 32, 32), np.uint8)).shape == (0, 2)
    first, groups = find_groups(np.zeros((3, 16, 16, 1), np.uint8))  # equal all the same
    assert first.tolist() == [0, 0, 0] and len(set(groups.tolist())) == 1


def test_groups_are_what_pairs_connect():
    groups = join_groups(6, np.array([[0, 3], [3, 5]]), np.array([[1, 2]]))
    assert [np.flatnonzero(groups == g).tolist() for g in groups[[0, 1, 4]]] == [
        [0, 3, 5],
        [1, 2],
        [4],
    ]


def write_set(folder, copies, split=None, patients=None):
    """60 birds in two classes, and near copies of some; a manifest names them all."""
    folder.mkdir()
    lines = ["path,label,site,patient,split"]
    for i in range(60):
        get_bird(i).save(folder / f"{i:02d}.png")
        part = "" if split is None else ("test" if i < 12 else "train")
        patient = "" if patients is None else patients[i]
        lines.append(f"{i:02d}.png,{i % 2},{'north' if i % 3 else 'south'},{patient},{part}")
    for i in copies:
        save_again(get_bird(i), 80).save(folder / f"copy-{i:02d}.png")
        part, patient = ("" if split is None else "train"), ("" if patients is None else f"c{i}")
        lines.append(f"copy-{i:02d}.png,{i % 2},{'south' if i % 3 else 'north'},{patient},{part}")
    keep = [0, 1, 2, *((3,) if patients else ()), *((4,) if split else ())]
    rows = [",".join(line.split(",")[k] for k in keep) for line in lines]
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    return folder


def make_federation(folder, partition, **keys):
    data = {"source": "manifest", "path": "table.csv", "image_size": 96, **keys}
    return assemble(parse({"data": data, "partition": partition}, folder))


def find_leaks(federation):
    """The birds of which one picture is trained on anywhere and another one tests."""
    names = [name[-6:-4] for name in federation.images.names.tolist()]
    train = {names[i] for rows in federation.sites.values() for i in rows.train}
    test = {names[i] for rows in federation.sites.values() for i in rows.test}
    test |= {names[i] for i in federation.server_test}
    return train & test


PARTITIONS = {
    "by site": {"kind": "column", "column": "site"},
    "simulated": {"kind": "iid", "sites": 3},
    "folds": {"kind": "iid", "sites": 2, "folds": 3},
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_a_copy_is_on_the_side_of_its_original_at_every_site(tmp_path, kind):
    folder = write_set(tmp_path / "set", range(0, 60, 2))
    assert not find_leaks(make_federation(folder, PARTITIONS[kind]))
    assert find_leaks(make_federation(folder, PARTITIONS[kind], duplicates="ignore"))


def test_a_copy_of_a_test_image_is_not_trained_on_and_the_log_says_so(tmp_path):
    folder = write_set(tmp_path / "set", (2, 5, 20), split=True)
    federation = make_federation(folder, {"kind": "iid", "sites": 2}, split="split")
    assert not find_leaks(federation)
    assert len(federation.server_test) == 12
    held = sum(len(rows.train) for rows in federation.sites.values())
    assert held == 48 + 1 and federation.left_out == 2
    remarks = " ".join(SimulatedSites(federation, None).remarks())
    assert "3 images nearly equal others" in remarks and "2 training images" in remarks


def test_patients_and_copies_are_one_unit_together(tmp_path):
    """Bird 8 belongs to the patient of bird 9, and a copy of it to another patient."""
    patients = [f"p{i // 2}" for i in range(60)]
    folder = write_set(tmp_path / "set", range(0, 60, 4), patients=patients)
    federation = make_federation(folder, PARTITIONS["by site"], patient="patient")
    names = federation.images.names.tolist()
    unit = [int(name[-6:-4]) // 2 for name in names]
    train = {unit[i] for rows in federation.sites.values() for i in rows.train}
    test = {unit[i] for rows in federation.sites.values() for i in rows.test}
    assert test and not train & test


def test_without_copies_the_split_is_what_it_was(tmp_path):
    folder = write_set(tmp_path / "set", ())
    for partition in PARTITIONS.values():
        new, old = (
            make_federation(folder, partition, duplicates=d) for d in ("together", "ignore")
        )
        assert new.digest() == old.digest() and new.images.groups is None


def test_older_run_folders_keep_their_split(tmp_path):
    (tmp_path / "config.toml").write_text('[data]\nsource = "manifest"\npath = "table.csv"\n')
    data = load_config(tmp_path / "config.toml", stored=True).config.data
    assert (data.duplicates, data.conflicts) == ("ignore", "allow")


def test_equal_images_of_two_classes_stop_a_run_unless_allowed(tmp_path):
    folder = write_set(tmp_path / "set", ())
    with (folder / "table.csv").open("a") as table:
        table.write("again.png,1,north\n")
    get_bird(4).save(folder / "again.png")
    partition = {"kind": "iid", "sites": 2}
    for duplicates in ("together", "ignore"):
        with pytest.raises(DataError, match=r"04\.png is 0 and again\.png is 1.*conflicts"):
            make_federation(folder, partition, duplicates=duplicates)
    federation = make_federation(folder, partition, conflicts="allow")
    assert len(federation.images) == 61
    done = CliRunner().invoke(app, ["data", "check", str(folder / "table.csv")])
    assert done.exit_code == 1 and "conflict: again.png: is the same image as 04.png" in done.output
    allowed = ["data", "check", str(folder / "table.csv"), "--set", "data.conflicts=allow"]
    assert CliRunner().invoke(app, allowed).exit_code == 0


def test_the_check_names_copies_at_other_sites_and_patients_on_both_sides(tmp_path):
    patients = ["p0" if i in (1, 40) else f"p{i + 1}" for i in range(60)]
    folder = write_set(tmp_path / "set", (2, 9), split=True, patients=patients)
    done = CliRunner().invoke(app, ["data", "check", str(folder / "table.csv")])
    assert "copy-02.png: is nearly the same image as 02.png, of another patient" in done.output
    assert "at another site (south, not north), in another split" in done.output
    assert "1 patients have images in both train and test: those of 01.png, 40.png" in done.output
    assert done.exit_code == 1
