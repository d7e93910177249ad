"""Arrays that other processes see without a copy, and that leave nothing behind."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from vitrail.config.schema import Data
from vitrail.data import shared_memory as store
from vitrail.data.decoding import image_cache as cache
from vitrail.data.records import Problem, Record
from vitrail.data.shared_memory import SharedArray, share
from vitrail.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_child_process_sees_the_same_arrays(own_cache):
    made = [
        SharedArray.zeros((3, 4), np.uint8, "memory"),
        SharedArray.zeros((3, 4), np.float32, "disk"),
    ]
    for store_ in made:
        store_.array[:] = np.arange(12).reshape(3, 4)
    code = (
        "import sys; from vitrail.data.shared_memory import SharedArray\n"
        "for fd, kind in zip(map(int, sys.argv[1:]), ('uint8', 'float32')):\n"
        "    a = SharedArray.attach(fd, (3, 4), kind)\n"
        "    print(a.flags.writeable, a.astype(int).ravel().tolist())"
    )
    fds = [store_.fd for store_ in made]
    out = subprocess.run(
        [sys.executable, "-c", code, *map(str, fds)],
        pass_fds=fds, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert out.stdout.splitlines() == [f"False {list(range(12))}"] * 2
    assert list(own_cache.iterdir()) == []  # the file on disk has no name


def test_adopt_copies_and_attach_sees_later_writes():
    source = np.arange(6, dtype=np.uint8).reshape(2, 3)
    made = SharedArray.adopt(source)
    view = SharedArray.attach(made.fd, (2, 3), np.uint8)
    made.array[0, 0] = 99
    assert view[0, 0] == 99 and source[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        made.as_read_only()[0, 0] = 1


def test_share_makes_no_copy_of_what_lives_in_a_store():
    made = SharedArray.zeros((5, 2), np.uint8, "memory")
    assert share(made.as_read_only()[:4]).fd == made.fd
    assert share(made.array[1:]).fd != made.fd  # does not begin where the file begins
    plain = np.ones((2, 2), np.uint8)
    assert share(plain).array.tolist() == plain.tolist()


def test_the_descriptor_lives_as_long_as_the_array():
    made = SharedArray.zeros((4,), np.uint8, "memory")
    fd, view = made.fd, made.as_read_only()
    del made
    gc.collect()
    os.fstat(fd)
    del view
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_empty_arrays():
    assert SharedArray.zeros((0, 8, 8, 3)).array.shape == (0, 8, 8, 3)
    empty = SharedArray.adopt(np.zeros((0,), np.float32))
    assert SharedArray.attach(empty.fd, (0,), np.float32).shape == (0,)


def test_auto_is_memory_below_a_quarter(monkeypatch):
    monkeypatch.setattr(store, "get_available_memory", lambda: 4000)
    assert (
        store.choose_place("auto", 999) == "memory" and store.choose_place("auto", 1000) == "disk"
    )
    assert (
        store.choose_place("memory", 10**9) == "memory" and store.choose_place("disk", 1) == "disk"
    )
    assert store.get_available_memory() > 0


def test_a_cache_folder_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "file" / "x"))
    with pytest.raises(DataError, match="VITRAIL_CACHE"):
        SharedArray.zeros((1,), np.uint8, "disk")


def decoded(value):
    images = np.full((2, 3, 3, 1), value, np.uint8)
    sizes = np.full((2, 2), 3, np.int32)
    problem = Problem("c.png", "broken", "is cut off")
    return cache.DecodedImages(images, np.array([0, 2]), sizes, (problem,))


def put(name, value):
    made = decoded(value)
    with cache.open_temporary((4, 3, 3, 1)) as (room, temporary):
        room.array[:2] = made.images
        cache.keep(name, made, temporary)


def test_the_cache_gives_back_what_was_put_and_nothing_damaged(own_cache):
    assert cache.find("a") is None and not own_cache.exists()
    put("a", 7)
    found = cache.find("a")
    assert (found.images == 7).all() and found.images.shape == (2, 3, 3, 1)
    assert found.kept.tolist() == [0, 2] and found.problems[0].path == "c.png"
    assert not found.images.flags.writeable
    assert sorted(p.name for p in own_cache.iterdir()) == ["a.json", "a.pixels"]
    (own_cache / "a.pixels").write_bytes(b"short")
    assert cache.find("a") is None
    (own_cache / "a.json").write_text("{")
    assert cache.find("a") is None


def test_a_failure_leaves_no_file(own_cache):
    with pytest.raises(ZeroDivisionError), cache.open_temporary((2, 3, 3, 1)):
        raise ZeroDivisionError
    assert list(own_cache.iterdir()) == []


def test_two_writers_at_once_do_not_collide(own_cache):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, ["a"] * 8, [5] * 8))
    assert (cache.find("a").images == 5).all()
    assert len(list(own_cache.iterdir())) == 2


def test_the_digest_follows_files_and_options(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"1")
    rows = [Record("a.png", file, "x")]
    first = cache.digest(rows, [], Data())
    assert cache.digest(rows, [], Data(label="other", limit=3)) == first  # pixels stay the same
    assert cache.digest(rows, [], Data(image_size=32)) != first
    assert cache.digest(rows, [], Data(resize="pad")) != first
    assert cache.digest(rows * 2, [], Data()) != first
    file.write_bytes(b"22")
    assert cache.digest(rows, [], Data()) != first
    file.unlink()
    assert cache.digest(rows, [], Data()) != first
