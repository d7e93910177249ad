import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.data.aviary.birds import derive_aviary_key, draw_birds
from vitrail.errors import ConfigError, DataError, RunError
from vitrail.metrics.bootstrap import bootstrap
from vitrail.metrics.classification import compute_detailed_metrics
from vitrail.metrics.resampled import make_statistics
from vitrail.report.evaluation import evaluate
from vitrail.report.figures.reliability_picture import compute_reliability
from vitrail.rng import derive_server_key
from vitrail.runs.predict_images import predict_probabilities


def config(classes, **sections):
    return {
        "data": {"image_size": 24, "aviary": {"images": 80, "classes": classes}},
        "partition": {"sites": 2},
        "model": {"backbone": "resnet8", "width": 8},
        "run": {"rounds": 2, "batch_size": 16},
        **sections,
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return vitrail.run(config(2), tmp_path_factory.mktemp("two") / "run")


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return vitrail.run(config(3), tmp_path_factory.mktemp("three") / "run")


def folder_of(birds, path, names=None):
    """A folder per class; returns the folder."""
    for i, (pixels, label) in enumerate(zip(birds.images, birds.labels)):
        place = path / (names or birds.classes)[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{i:03d}.png")
    return path


def table_of(birds, path, names, **columns):
    cells = []
    for pixels in birds.images:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        cells.append(buffer.getvalue())
    labels = [names[i] for i in birds.labels]
    pq.write_table(pa.table({"image": cells, "label": labels, **columns}), path)
    return path


def test_figures_agree_with_another_library(two, tmp_path):
    birds = draw_birds(60, 2, derive_aviary_key(7), 24)
    assert birds.classes == two.classes
    measured = evaluate(two, folder_of(birds, tmp_path / "new"), repeats=50)
    p = predict_probabilities(two.model(), birds.images).astype(np.float64)
    guess = p.argmax(axis=1)
    figures = {name: interval.value for name, interval in measured.figures.items()}
    assert figures["auroc"] == pytest.approx(roc_auc_score(birds.labels, p[:, 1]), abs=1e-6)
    wanted = average_precision_score(birds.labels, p[:, 1])
    assert figures["auprc"] == pytest.approx(wanted, abs=1e-6)
    matrix = confusion_matrix(birds.labels, guess)
    assert measured.confusion == matrix.tolist()
    assert figures["accuracy"] == pytest.approx((guess == birds.labels).mean())
    assert figures["sensitivity"] == pytest.approx(matrix[1, 1] / matrix[1].sum())
    assert figures["specificity"] == pytest.approx(matrix[0, 0] / matrix[0].sum())
    both = (figures["sensitivity"] + figures["specificity"]) / 2
    assert figures["balanced_accuracy"] == pytest.approx(both)
    assert measured.images == 60 and sum(measured.counts) == 60
    for interval in measured.figures.values():
        assert interval.low is not None and interval.low <= interval.value <= interval.high
        assert interval.groups == 60


def test_statistics_are_the_figures_of_the_engine_and_of_a_literal_resample():
    draw_ = np.random.Generator(np.random.PCG64(0))
    for classes in (2, 4):
        z = draw_.normal(size=(50, classes)).round(1)  # rounding makes ties
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        y = draw_.integers(0, classes, 50)
        statistics = make_statistics(z, p, y)
        rows = draw_.integers(0, 50, 50)
        weights = np.stack([np.ones(50), np.bincount(rows, minlength=50)])
        for chosen, place in ((np.arange(50), 0), (rows, 1)):
            slow = compute_detailed_metrics(p[chosen], y[chosen], classes)
            for name in ("auprc", "ece", "brier"):
                assert statistics[name](weights)[place] == pytest.approx(slow[name])


def test_a_resample_without_a_class_is_undefined_not_a_crash():
    z = np.array([[1.0, 0.0], [0.0, 1.0]])
    statistics = make_statistics(z, z, np.array([0, 1]))
    only = np.array([[2.0, 0.0]])
    assert np.isnan(statistics["auroc"](only)[0]) and np.isnan(statistics["sensitivity"](only)[0])
    assert np.isnan(statistics["auprc"](only)[0]) and statistics["accuracy"](only)[0] == 1.0


def test_bins_hold_every_image_once():
    p = np.array([[0.5, 0.5], [0.0, 1.0], [0.2, 0.8], [1.0, 0.0]])
    bins = compute_reliability(p, np.array([0, 1, 0, 1]))
    assert sum(b.images for b in bins) == 4
    assert bins[-1].images == 2 and bins[-1].accuracy == 0.5 and bins[-1].confidence == 1.0
    assert bins[0].images == 0 and bins[0].accuracy is None


def test_labels_are_matched_by_name_whatever_their_order(three, tmp_path):
    birds = draw_birds(30, 3, derive_aviary_key(7), 24)
    plain = evaluate(three, folder_of(birds, tmp_path / "plain"), repeats=2)
    # numbered labels in another order, renamed back to the names the model knows
    order = ["2", "0", "1"]
    folder_of(birds, tmp_path / "mixed", order)
    sets = [
        f"data.rename.{number}={json.dumps(name)}" for number, name in zip(order, birds.classes)
    ]
    mixed = evaluate(three, tmp_path / "mixed", overrides=sets, repeats=2)
    assert mixed.confusion == plain.confusion
    assert "sensitivity" not in plain.figures


def test_an_unknown_label_is_a_sentence_and_an_absent_class_a_note(three, tmp_path):
    birds = draw_birds(30, 3, derive_aviary_key(7), 24)
    shutil.rmtree(folder_of(birds, tmp_path / "less") / birds.classes[1])
    measured = evaluate(three, tmp_path / "less", repeats=20)
    assert measured.counts[1] == 0 and repr(birds.classes[1]) in measured.notes[0]
    assert measured.figures["auroc"].value is not None
    names = ["penguin", *birds.classes[1:]]
    with pytest.raises(DataError, match=r"does not know 'penguin'.*data\.rename\.penguin"):
        evaluate(three, folder_of(birds, tmp_path / "more", names))


def test_intervals_resample_patients(two, tmp_path):
    birds = draw_birds(60, 2, derive_aviary_key(7), 24)
    patients = [f"p{i // 10}" for i in range(60)]
    table = table_of(birds, tmp_path / "p.parquet", birds.classes, patient=patients)
    measured = evaluate(two, table, repeats=200)
    assert measured.patients == 6
    assert all(interval.groups == 6 for interval in measured.figures.values())
    assert not any("patients" in note for note in measured.notes)


def test_one_split_can_be_chosen(two, tmp_path):
    birds = draw_birds(40, 2, derive_aviary_key(7), 24)
    split = ["train"] * 30 + ["test"] * 10
    table = table_of(birds, tmp_path / "s.parquet", birds.classes, split=split)
    assert evaluate(two, table, repeats=2).images == 40
    assert evaluate(two, table, split="test", repeats=2).images == 10
    with pytest.raises(DataError, match="no image belongs to the split 'val'"):
        evaluate(two, table, split="val")


def test_the_run_s_own_columns_are_used_for_the_same_kind_of_source(tmp_path):
    birds = draw_birds(60, 2, derive_aviary_key(7), 24)
    labels = [["Edema", "Fracture"] if i else ["Fracture"] for i in birds.labels]
    for name in ("old", "new"):
        table_of(birds, tmp_path / f"{name}.parquet", birds.classes, **{"what is seen": labels})
    data = {"source": "parquet", "path": str(tmp_path / "old.parquet"), "image_size": 24}
    data |= {"label": "what is seen", "positive": "Edema"}
    run = vitrail.run(config(2, data=data), tmp_path / "run")
    measured = evaluate(run, tmp_path / "new.parquet", repeats=2)
    assert measured.classes == ("rest", "Edema")
    assert measured.counts == tuple(np.bincount(birds.labels).tolist())
    again = evaluate(run, tmp_path / "old.parquet", repeats=2)
    assert any("flatter" in note for note in again.notes)


def test_the_command_prints_writes_and_never_overwrites(two, tmp_path):
    data = folder_of(draw_birds(30, 2, derive_aviary_key(7), 24), tmp_path / "new")
    words = ["evaluate", str(two.path), "--data", str(data), "--out", str(tmp_path / "out")]
    words += ["--json", str(tmp_path / "e.json")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    assert "AUROC" in done.stdout and "95 % interval" in done.stdout
    written = json.loads((tmp_path / "e.json").read_text())
    assert written == json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert written["figures"]["auroc"]["repeats"] == 1000
    for name in ("confusion.png", "reliability.png"):
        picture = Image.open(tmp_path / "out" / name)
        assert picture.format == "PNG" and min(picture.size) > 200
    again = CliRunner().invoke(app, words)
    assert isinstance(again.exception, RunError) and "exists" in str(again.exception)
    assert CliRunner().invoke(app, [*words, "--force"]).exit_code == 0


def test_bad_input_is_one_sentence(two, tmp_path):
    with pytest.raises(DataError, match="nothing here"):
        evaluate(two, tmp_path / "gone")
    with pytest.raises(RunError, match="no site 'nobody'"):
        evaluate(
            two,
            folder_of(draw_birds(10, 2, derive_aviary_key(7), 24), tmp_path / "new"),
            site="nobody",
        )
    with pytest.raises(ConfigError, match="unknown"):
        evaluate(two, tmp_path / "new", overrides=["data.labell=x"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images"):
        evaluate(two, tmp_path / "empty")


def test_what_few_images_cannot_tell_is_not_a_number(two, tmp_path):
    birds = draw_birds(60, 2, derive_aviary_key(7), 24)
    few = evaluate(two, folder_of(birds.take(np.arange(12)), tmp_path / "few"), repeats=50)
    assert few.figures["ece"].value is None and few.figures["accuracy"].value is not None
    assert any("12 images are few" in note for note in few.notes)
    split = ["test" if label == 0 else "train" for label in birds.labels]
    table = table_of(birds, tmp_path / "one.parquet", birds.classes, split=split)
    one = evaluate(two, table, split="test", repeats=50)
    for name in ("auroc", "auprc", "balanced_accuracy"):
        assert one.figures[name].value is None, name
    assert any("all images are of one class" in note for note in one.notes)


def test_an_interval_of_one_point_is_none():
    """All right on five images is not certainly all right."""
    certain = bootstrap(lambda weights: np.ones(len(weights)), 5, derive_server_key(1), 100)
    assert (certain.value, certain.low, certain.high) == (1.0, None, None)
