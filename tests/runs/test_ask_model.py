"""Asking a model and arguing with it: numbers that follow, and still add up."""

import io
import math
import time

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.errors import ConfigError, DataError
from vitrail.runs.ask_model import get_asker
from vitrail.runs.reopen import load_run_federation


@pytest.fixture(scope="session")
def asked(tmp_path_factory, tiny_config):
    folder = tmp_path_factory.mktemp("asked")
    shape = {
        "data": {"aviary": {"images": 200, "classes": 3, "seed": 7}},
        "partition": {"kind": "iid", "sites": 2},
        "run": {"rounds": 1, "local_epochs": 1, "local_reference": True},
    }
    proto = {
        **shape,
        "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        "model": {"prototypes": {"per_class": 2, "depth": 8}},
    }
    run = vitrail.run(tiny_config(**proto), folder / "myth")
    vitrail.run(tiny_config(**shape, method={"name": "fedavg"}), folder / "fedavg")
    federation = load_run_federation(run)
    image = np.array(federation.images.images[int(federation.sites[run.sites[0]].test[0])])
    return run, vitrail.load(folder / "fedavg"), image


def check_sums(answer):
    for entry in answer.evidence:
        total = math.fsum(row.contribution for row in entry.contributions)
        assert math.isclose(total, answer.logits[entry.label], abs_tol=1e-4)
    assert math.isclose(sum(answer.probabilities), 1)
    assert answer.calibrated is None or math.isclose(sum(answer.calibrated), 1)


def test_the_answer_is_the_models_and_adds_up(asked):
    run, _, image = asked
    answer = run.ask(image, classes=run.classes)
    check_sums(answer)
    probabilities = run.model().probabilities(_to_batch(image))[0].tolist()
    assert np.allclose(answer.probabilities, probabilities, atol=1e-5)
    assert answer.predicted == run.classes[int(np.argmax(probabilities))]
    assert len(answer.evidence) == 3 and answer.calibration.images >= 20
    written = answer.to_json()
    assert written["evidence"][0]["contributions"][0]["switch"] is not None
    assert set(written["probabilities"]) == set(run.classes)


def test_every_argument_changes_the_numbers_and_they_still_add_up(asked):
    run, _, image = asked
    plain = run.ask(image)
    switch = plain.switches[0][0]
    other = np.flip(image, 1).copy()
    for change in (
        {"cover": [(4, 4, 20, 20)]},
        {"cover": [(4, 4, 20, 20)], "how": "cover"},
        {"cover": [(4, 4, 20, 20)], "how": "paste", "paste": other},
        {"without": [switch]},
        {"pull": 0.0},
        {"site": run.sites[0], "which": "local"},
    ):
        answer = run.ask(image, **change)
        check_sums(answer)
        assert answer.logits != plain.logits, change
    off = run.ask(image, without=[switch])
    parts = {row.unit for entry in off.evidence for row in entry.contributions}
    assert switch not in parts


def test_a_mask_and_the_same_box_are_the_same(asked):
    run, _, image = asked
    mask = np.zeros(image.shape[:2], bool)
    mask[4:20, 6:22] = True
    by_mask, by_box = run.ask(image, cover=mask), run.ask(image, cover=[(6, 4, 22, 20)])
    assert by_mask.logits == by_box.logits
    hidden = np.array(image)
    hidden[4:20, 6:22] = 255 - hidden[4:20, 6:22]  # what was there does not matter any more
    assert run.ask(hidden, cover=mask).logits == by_mask.logits


def test_files_bytes_pictures_and_arrays_are_one_image(asked, tmp_path):
    run, _, image = asked
    picture = Image.fromarray(image)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    (tmp_path / "a.png").write_bytes(buffer.getvalue())
    answers = [run.ask(one) for one in (image, picture, buffer.getvalue(), tmp_path / "a.png")]
    assert all(answer.logits == answers[0].logits for answer in answers)


def test_a_black_box_has_a_map_and_cannot_be_switched(asked):
    _, black, image = asked
    answer = black.ask(image)
    assert not answer.has_parts and answer.evidence[0].contributions[0].map is not None
    with pytest.raises(ConfigError, match="no parts"):
        black.ask(image, without=[0])


@pytest.mark.parametrize("change, words", [
    ({"cover": [(5, 5, 5, 9)]}, "no box"),
    ({"cover": [(0, 0, math.nan, 9)]}, "no box"),
    ({"cover": [(0, 0, 999, 999)]}, "nothing is left"),
    ({"cover": np.zeros((3, 3), bool)}, "does not fit"),
    ({"cover": [(0, 0, 5, 5)], "how": "burn"}, "burn"),
    ({"cover": [(0, 0, 5, 5)], "how": "paste"}, "paste from"),
    ({"classes": ["unicorn"]}, "unicorn"),
    ({"top": 0}, "listed"),
])  # fmt: skip
def test_bad_questions_are_one_sentence(asked, change, words):
    run, _, image = asked
    with pytest.raises(ConfigError, match=words):
        run.ask(image, **change)


def test_broken_bytes_are_one_sentence(asked):
    run, _, _ = asked
    for broken in (b"", b"no image", b"\x89PNG\r\n\x1a\n" + b"\0" * 50):
        with pytest.raises(DataError):
            run.ask(broken)


def test_asking_again_is_quick(asked):
    run, _, image = asked
    run.ask(image)
    began = time.perf_counter()
    for _ in range(10):
        run.ask(image, cover=[(4, 4, 20, 20)])
    assert (time.perf_counter() - began) / 10 < 0.3
    assert get_asker(run) is get_asker(vitrail.load(run.path))


def _to_batch(image):
    import torch

    return torch.from_numpy(image).permute(2, 0, 1)[None]
