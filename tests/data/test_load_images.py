"""Loading as a whole: folder, manifest; problems, limits, caches, hostile input."""

import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from vitrail import rng
from vitrail.config.schema import Data
from vitrail.data import SOURCES, ImageSet, load, load_with_problems
from vitrail.data import shared_memory as store_module
from vitrail.data.public_set import load_public
from vitrail.data.shared_memory import share
from vitrail.errors import ConfigError, DataError

KEY = rng.derive_server_key(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "the cache"))


def picture(path, value=0, size=(20, 16), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, 0, 0)).save(path)
    return path


@pytest.fixture
def folders(tmp_path):
    root = tmp_path / "pets"
    for i in range(4):
        picture(root / "cat" / f"{i}.png", i)
        picture(root / "dog" / f"{i}.PNG", 100 + i)
    return root


def read(root, **options):
    return load_with_problems(Data(path=str(root), **options), root.parent, KEY)


def test_a_folder_per_class(folders):
    images, problems = read(folders, source="folder", image_size=8)
    assert problems == [] and images.classes == ("cat", "dog")
    assert images.images.shape == (8, 8, 8, 3) and images.images.dtype == np.uint8
    assert images.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert images.names[4] == "dog/0.PNG" and images.sizes[0].tolist() == [20, 16]
    assert images.splits is None and images.sites is None and images.boxes is None
    assert not images.images.flags.writeable
    assert np.shares_memory(share(images.images).array, images.images)


def test_relative_paths_start_at_the_config(folders):
    images = load(Data(source="folder", path="pets"), folders.parent, KEY)
    assert len(images) == 8 and images.images.shape[1] == 224  # 20 x 16 is no square


def test_train_and_test_folders(tmp_path):
    for part in ("train", "Val", "test"):
        picture(tmp_path / "set" / part / "a" / "1.png", size=(8, 8))
        picture(tmp_path / "set" / part / "b" / "1.png", size=(8, 8))
    images, problems = read(tmp_path / "set", source="folder")
    assert dict(zip(images.names, images.splits))["test/a/1.png"] == "test"
    assert (images.splits == "train").sum() == 4  # validation is trained on beside a test part
    assert "2 validation images" in problems[0].sentence
    assert images.images.shape == (6, 8, 8, 3)


def test_grey_stays_grey_unless_one_is_not(tmp_path):
    picture(tmp_path / "s" / "a" / "1.png", 5, (8, 8), "L")
    picture(tmp_path / "s" / "b" / "1.png", 6, (8, 8), "L")
    assert read(tmp_path / "s", source="folder")[0].images.shape[3] == 1
    assert read(tmp_path / "s", source="folder", channels=3)[0].images.shape[3] == 3
    picture(tmp_path / "s" / "b" / "2.png", 6, (8, 8))
    assert read(tmp_path / "s", source="folder")[0].images.shape[3] == 3


def test_clutter_loops_and_odd_names(folders):
    (folders / ".DS_Store").write_bytes(b"x")
    (folders / "cat" / ".hidden.png").write_bytes(b"x")
    (folders / "cat" / "Thumbs.db").write_bytes(b"x")
    (folders / "cat" / "notes.txt").write_text("hi")
    (folders / "empty").mkdir()
    os.symlink(folders, folders / "cat" / "loop")
    os.symlink(folders / "cat", folders / "cat" / "self")
    picture(folders / "Überraschung 日本" / "é.jpeg")
    picture(folders / "loose.png")
    images, problems = read(folders, source="folder", image_size=8)
    counts = dict(zip(images.classes, np.bincount(images.labels).tolist()))
    assert counts["cat"] == counts["dog"] == 4  # a link upwards makes no cats of dogs
    assert "Überraschung 日本" in images.classes and "empty" not in images.classes
    assert len(set(images.names)) == len(images.names)
    said = {p.path: p.sentence for p in problems}
    assert "no image" in said["empty"] and "no image" in said["cat/notes.txt"]
    assert "no class" in said["loose.png"]
    assert all(p.kind == "suspicious" for p in problems)


def test_pipes_and_names_that_are_no_text(folders):
    os.mkfifo(folders / "cat" / "pipe.png")
    os.symlink(folders / "gone", folders / "cat" / "link.png")
    odd = os.fsencode(folders / "dog") + b"\xff"
    os.mkdir(odd)
    with open(odd + b"/\xfe.png", "wb") as file:
        file.write((folders / "dog" / "0.PNG").read_bytes())
    images, problems = read(folders, source="folder", image_size=8, broken="skip")
    assert {(p.path, p.kind) for p in problems} == {
        ("cat/pipe.png", "broken"),
        ("cat/link.png", "missing"),
    }
    assert images.classes == ("cat", "dog", "dog?")
    assert "dog?/?.png" in images.names and "\udcff" not in "".join(images.names)


def test_a_broken_file_stops_with_one_sentence_or_is_skipped(folders):
    (folders / "cat" / "zz.png").write_text("no image")
    for i in range(3):
        whole = (folders / "dog" / "0.PNG").read_bytes()
        (folders / "dog" / f"cut{i}.png").write_bytes(whole[:60])
    with pytest.raises(DataError) as stopped:
        read(folders, source="folder", image_size=8)
    text = str(stopped.value)
    assert "\n" not in text and "cat/zz.png" in text and "broken" in text
    assert "vitrail data check" in text and 'data.broken = "skip"' in text
    images, problems = read(folders, source="folder", image_size=8, broken="skip")
    assert len(images) == 8 and {p.kind for p in problems} == {"broken"} and len(problems) == 4
    # What failed while decoding leaves no gap, and columns stay aligned.
    assert images.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert images.labels.tolist() == [0] * 4 + [1] * 4 and len(images.sizes) == 8


def test_skipping_may_not_lose_a_class(tmp_path):
    picture(tmp_path / "s" / "a" / "1.png")
    (tmp_path / "s" / "b").mkdir()
    (tmp_path / "s" / "b" / "1.png").write_text("no image")
    with pytest.raises(DataError, match="only the class 'a' has images"):
        read(tmp_path / "s", source="folder", broken="skip")
    (tmp_path / "s" / "a" / "1.png").write_text("no image")
    with pytest.raises(DataError, match="not one image"):
        read(tmp_path / "s", source="folder", broken="skip")


def test_paths_sources_and_empty_folders_that_are_wrong(tmp_path, folders):
    with pytest.raises(DataError, match=r"data.path: .*does not exist"):
        load(Data(source="folder", path="nowhere"), tmp_path, KEY)
    with pytest.raises(DataError, match="needs a path"):
        load(Data(source="folder"), tmp_path, KEY)
    with pytest.raises(ConfigError, match="Did you mean 'folder'"):
        load(Data(source="foldr", path="pets"), tmp_path, KEY)
    (tmp_path / "void").mkdir()
    with pytest.raises(DataError, match="there are no images here"):
        read(tmp_path / "void", source="folder")
    with pytest.raises(DataError, match="no class folders"):
        read(folders / "cat", source="folder")
    with pytest.raises(DataError, match="one class only"):
        only = tmp_path / "only"
        picture(only / "a" / "1.png")
        read(only, source="folder")


def manifest(tmp_path, text, encoding="utf-8", name="m.csv"):
    for i in range(4):
        picture(tmp_path / "d" / "im" / f"{i}.png", 50 * i, (40, 20))
    path = tmp_path / "d" / name
    path.write_bytes(text.encode(encoding))
    return path


ROWS = "path,label,site,patient,split,x0,y0,x1,y1,age\n" + "".join(
    f"im/{i}.png,{'ab'[i % 2]},s{i // 2},p{i},{'train' if i < 3 else 'test'},10,0,30,20,{30 + i}\n"
    for i in range(4)
)


@pytest.mark.parametrize(
    ("change", "encoding"),
    [
        (lambda t: t, "utf-8"),
        (lambda t: t, "utf-8-sig"),
        (lambda t: t.replace(",", ";").replace("\n", "\r\n"), "utf-8-sig"),
        (lambda t: t.replace(",", "\t") + "\n\n", "utf-16"),
    ],
)
def test_a_manifest_in_any_dialect(tmp_path, change, encoding):
    path = manifest(tmp_path, change(ROWS), encoding)
    images, problems = read(path, source="manifest", image_size=10)
    assert problems == [] and images.classes == ("a", "b")
    assert images.sites.tolist() == ["s0", "s0", "s1", "s1"]
    assert images.patients.tolist() == ["p0", "p1", "p2", "p3"]
    assert images.splits.tolist() == ["train"] * 3 + ["test"]
    assert images.boxes.tolist() == [[0, 0, 10, 10]] * 4  # the middle 20 x 20 of 40 x 20
    assert images.extra["age"].tolist() == [30, 31, 32, 33]
    assert images.extra["site"].tolist() == images.sites.tolist()
    assert images.images[:, 0, 0, 0].tolist() == [0, 50, 100, 150]


def test_manifest_columns_by_name_and_boxes_as_json(tmp_path):
    rows = "".join(f'im/{i}.png,{i % 2},H{i},"[1, 2, 3, 4]"\n' for i in range(4))
    path = manifest(tmp_path, "bild,klasse,haus,rahmen\n" + rows)
    named = {"image": "bild", "label": "klasse", "site": "haus", "box": "rahmen"}
    images, _ = read(path, source="manifest", image_size=20, resize="pad", **named)
    assert images.classes == ("0", "1") and images.sites[3] == "H3"
    assert images.boxes[0].tolist() == [0.5, 6, 1.5, 7]  # half the size, 5 pixels of bar on top
    with pytest.raises(DataError, match=r"no column 'klase' \(data.label\).*Did you mean 'klasse'"):
        read(path, source="manifest", image="bild", label="klase")
    with pytest.raises(DataError, match=r"no column 'image'"):
        read(path, source="manifest", label="klasse")


def test_missing_files_absolute_paths_and_paths_that_leave_the_folder(tmp_path):
    outside = picture(tmp_path / "outside.png", 9)
    rows = f"im/0.png,a\n{outside},b\n../outside.png,b\nim/none.png,a\n"
    path = manifest(tmp_path, "path,label\n" + rows)
    with pytest.raises(DataError, match=r"1 missing\): im/none.png there is no such file"):
        read(path, source="manifest")
    images, problems = read(path, source="manifest", broken="skip", image_size=8)
    assert images.labels.tolist() == [0, 1, 1] and problems[0].kind == "missing"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("path,label\n", "no rows"),
        ("path,path\nx,y\n", "two columns"),
        ("path,label\nim/0.png,a,b\n", "line 2 has 3 cells"),
        ("path,label\n,a\n", "names no file"),
        ('path,label\n"im/0.png,a\n', "line 2"),
        ("path,label,split\nim/0.png,a,sometimes\nim/1.png,b,train\n", "split 'sometimes'"),
        ("path,label,box\nim/0.png,a,[1]\nim/1.png,b,\n", "the box of im/0.png"),
        ("path,label,box\nim/0.png,a,\"[5,5,1,1]\"\nim/1.png,b,\n", "the box of im/0.png"),
        ("path,label,site\nim/0.png,a,s\nim/1.png,b,\n", "1 of 2 images have no site"),
        ("path,label\nim/0.png,a\nim/1.png,\nim/2.png,b\n", "1 without a usable label"),
    ],
)  # fmt: skip
def test_manifests_that_are_wrong(tmp_path, text, said):
    with pytest.raises(DataError) as err:
        read(manifest(tmp_path, text), source="manifest", image_size=8)
    assert said in str(err.value) and "\n" not in str(err.value)


def test_a_manifest_that_is_not_utf8(tmp_path):
    path = manifest(tmp_path, "path,label\nim/0.png,é\n", "latin-1")
    with pytest.raises(DataError, match="Save it as UTF-8"):
        read(path, source="manifest")


def test_findings_in_a_manifest(tmp_path):
    path = manifest(tmp_path, "path,label\nim/0.png,A|B\nim/1.png,No Finding\nim/2.png,B\n")
    images, _ = read(path, source="manifest", positive="A", negatives="none", image_size=8)
    assert images.labels.tolist() == [1, 0]
    assert images.findings == (frozenset("AB"), frozenset({"No Finding"}))


def test_a_limit_keeps_proportions_and_every_class(tmp_path):
    y = np.array([0] * 80 + [1] * 18 + [2] * 2)
    np.savez(tmp_path / "a.npz", x=np.arange(6400, dtype=np.uint16).reshape(100, 8, 8) % 256, y=y)
    images = load(Data(source="npz", path="a.npz", limit=20), tmp_path, KEY)
    counts = np.bincount(images.labels)
    assert len(images) == 20 and counts[2] >= 1 and 14 <= counts[0] <= 17
    order = [int(name[2:-1]) for name in images.names]
    assert order == sorted(order)
    again = load(Data(source="npz", path="a.npz", limit=20), tmp_path, KEY)
    assert (again.names == images.names).all()
    other = load(Data(source="npz", path="a.npz", limit=20), tmp_path, rng.derive_server_key(2))
    assert (other.names != images.names).any()


def test_the_disk_cache_is_used_and_follows_the_files(folders, tmp_path, monkeypatch):
    options = {"source": "folder", "image_size": 8, "cache": "disk", "broken": "skip"}
    (folders / "cat" / "bad.png").write_text("x")
    first, problems = read(folders, **options)
    cached = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "the cache").iterdir()}
    assert len(cached) == 2
    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", lambda *a, **k: pytest.fail("decoded again"))
        second, same = read(folders, **options)
    assert (first.images == second.images).all() and problems == same and len(same) == 1
    assert (first.sizes == second.sizes).all() and (first.names == second.names).all()
    picture(folders / "cat" / "0.png", 77)
    third, _ = read(folders, **options)
    assert third.images[0, 0, 0, 0] == 77 and first.images[0, 0, 0, 0] == 0


def test_memory_never_touches_the_disk_and_auto_only_when_large(folders, tmp_path, monkeypatch):
    read(folders, source="folder", image_size=8, cache="memory")
    read(folders, source="folder", image_size=8)
    assert not (tmp_path / "the cache").exists()
    monkeypatch.setattr(store_module, "get_available_memory", lambda: 1000)
    large, _ = read(folders, source="folder", image_size=8)
    assert len(list((tmp_path / "the cache").iterdir())) == 2 and len(large) == 8


def test_embedded_images_come_ready_and_obey_the_limit(tmp_path):
    images = load(Data(limit=30), tmp_path, KEY)
    assert len(images) == 30 and len(images.classes) == 6


@pytest.mark.parametrize(("key", "value"), [("keep", 2), ("rename", {"class-0": "wren"})])
def test_embedded_images_have_their_own_classes(tmp_path, key, value):
    with pytest.raises(ConfigError, match=rf"data\.{key}: .*embedded.*no use for data\.{key}"):
        load(Data(**{key: value}), tmp_path, KEY)


def _stripes(data, path, key):
    size = data.image_size or 16
    labels = np.arange(12) % 2
    pixels = np.full((12, size, size, 3), 40, np.uint8)
    pixels[labels == 1, ::2] = 200
    names = np.array([f"stripes-{i}" for i in range(12)])
    return ImageSet(pixels, labels, ("plain", "striped"), names)


@pytest.fixture
def own_source():
    """A function: register a source for this test only."""
    yield lambda make, **how: SOURCES.register("stripes", **how)(make)
    SOURCES._items.pop("stripes", None)


def test_a_source_says_itself_that_it_needs_no_path(own_source, tmp_path):
    own_source(_stripes, needs_path=False)
    images = load(Data(source="stripes", image_size=8), tmp_path, KEY)
    assert images.images.shape == (12, 8, 8, 3) and images.classes == ("plain", "striped")
    own_source(_stripes)
    with pytest.raises(DataError, match="'stripes' needs a path"):
        load(Data(source="stripes"), tmp_path, KEY)


def test_public_images_are_drawn_at_the_size_of_the_sites(own_source, tmp_path):
    own_source(_stripes, needs_path=False)
    public = load_public(Data(source="stripes"), tmp_path, (8, 8, 3), KEY)
    assert public.images.shape == (12, 8, 8, 3)


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("images", np.zeros((12, 8, 8, 3), np.float32), "images are float32"),
        ("images", np.zeros((12, 8, 8), np.uint8), r"not uint8 \[N, H, W, 1 or 3\]"),
        ("images", np.zeros((12, 8, 9, 3), np.uint8), "9 x 8, not square"),
        ("labels", np.zeros(11, np.int64), r"labels are int64 \[11\]"),
        ("labels", np.zeros(12, np.int32), "labels are int32"),
        ("labels", np.full(12, 2), "not numbers of its 2 classes"),
        ("names", np.array(["one"]), "1 names for 12 images"),
    ],
)
def test_a_drawn_set_that_cannot_be_used_is_refused(own_source, tmp_path, column, value, told):
    own_source(
        lambda data, path, key: replace(_stripes(data, path, key), **{column: value}),
        needs_path=False,
    )
    with pytest.raises(DataError, match=f"source 'stripes' returned what cannot be used: .*{told}"):
        load(Data(source="stripes"), tmp_path, KEY)
