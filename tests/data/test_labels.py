"""Raw labels become classes; what cannot be meant is an error that names rows."""

import numpy as np
import pytest

from vitrail import rng
from vitrail.config.schema import Data
from vitrail.data.labels import resolve_labels, undersample
from vitrail.errors import DataError


def resolved(raw, known=None, **options):
    return resolve_labels(raw, [f"image {i}" for i in range(len(raw))], Data(**options), known)


def words(result):
    return [result.classes[i] for i in result.labels]


def test_integers_sort_by_value_and_gaps_are_noted():
    result = resolved([10, 2, 2, 0])
    assert result.classes == ("0", "2", "10") and words(result) == ["10", "2", "2", "0"]
    assert any("gaps" in p.sentence for p in result.problems)
    assert resolved(["10", "9", "010"]).classes == ("9", "10")


def test_integers_index_into_known_names():
    result = resolved([1, 0, 1], known=("cat", "dog"))
    assert result.classes == ("cat", "dog") and result.labels.tolist() == [1, 0, 1]
    assert words(resolved([1, 0], classes=("ant", "bee"))) == ["bee", "ant"]
    assert words(resolved([7, 3], classes=("3", "7"))) == ["7", "3"]


def test_labels_outside_of_the_range_name_their_rows():
    with pytest.raises(DataError, match=r"1 label is outside of 0\.\.1: row 2 \(image 2\) has 2"):
        resolved([0, 1, 2], known=("cat", "dog"))
    with pytest.raises(DataError, match="2 labels are outside of 0 and up: row 0"):
        resolved([-1, 1, -1])
    assert resolved([-1, 1], rename={"-1": "no", "1": "yes"}).classes == ("no", "yes")


def test_words_are_sorted_trimmed_and_spelled_one_way():
    result = resolved([" zebra ", "caf\u00e9", "cafe\u0301", "a  b"])
    assert result.classes == ("a b", "caf\u00e9", "zebra")


def test_rename_joins_classes():
    result = resolved(["cat", "kitten", "dog"], rename={"kitten": "cat"})
    assert result.classes == ("cat", "dog") and result.labels.tolist() == [0, 0, 1]


def test_classes_fix_the_order_and_refuse_others():
    assert resolved(["a", "b"], classes=("b", "a")).labels.tolist() == [1, 0]
    with pytest.raises(DataError, match=r"'kat'.*row 1.*Did you mean 'cat'"):
        resolved(["cat", "kat", "dog"], classes=("cat", "dog"))
    with pytest.raises(DataError, match="no image has the class 'bird'"):
        resolved(["cat", "dog"], classes=("cat", "dog", "bird"))
    with pytest.raises(DataError, match="named twice"):
        resolved(["cat", "dog"], classes=("cat", "cat"))


def test_one_class_or_none_is_an_error():
    with pytest.raises(DataError, match="one class only"):
        resolved(["a", "a"])
    with pytest.raises(DataError, match="one class only"):
        resolved([])


def test_missing_labels_are_problems():
    result = resolved(["a", None, "", "b"])
    assert result.rows.tolist() == [0, 3]
    assert [(p.path, p.kind) for p in result.problems] == [
        ("image 1", "label"),
        ("image 2", "label"),
    ]


FINDINGS = [("Mass",), ("Mass", "Edema"), ("Edema",), (), ("No Finding",), ("Hernia",)]


@pytest.mark.parametrize(
    ("negatives", "rows"),
    [("rest", [0, 1, 2, 3, 4, 5]), ("none", [0, 1, 3, 4]), ("Edema", [0, 1, 2])],
)
def test_one_finding_against_others(negatives, rows):
    result = resolved(FINDINGS, positive="Mass", negatives=negatives)
    assert result.classes == ("rest", "Mass")
    assert result.rows.tolist() == rows
    assert words(result) == ["Mass" if "Mass" in FINDINGS[i] else "rest" for i in rows]
    assert result.findings == tuple(frozenset(FINDINGS[i]) for i in rows)


def test_lists_need_a_positive_that_somebody_has():
    with pytest.raises(DataError, match=r"data.positive: .*lists.*Edema, Hernia, Mass"):
        resolved(FINDINGS)
    with pytest.raises(DataError, match=r"no image has 'Mas'.*Did you mean 'Mass'"):
        resolved(FINDINGS, positive="Mas")
    with pytest.raises(DataError, match=r"data.negatives: no image has 'non'"):
        resolved(FINDINGS, positive="Mass", negatives="non")


def test_positive_works_on_single_labels_too():
    result = resolved(["smile", "frown", "cry"], positive="smile")
    assert result.classes == ("rest", "smile") and result.labels.tolist() == [1, 0, 0]
    assert resolved([0, 1, 2], known=("a", "b", "c"), positive="c").labels.tolist() == [0, 0, 1]


def test_long_labels_survive():
    long = "x" * 200
    assert resolved([long, "y"]).classes == (long, "y")


def test_undersample_cuts_every_class_to_the_smallest():
    labels = np.array([0] * 50 + [1] * 7 + [2] * 20)
    rows = undersample(labels, rng.derive_server_key(1))
    assert np.bincount(labels[rows]).tolist() == [7, 7, 7]
    assert (np.diff(rows) > 0).all()
    assert (rows == undersample(labels, rng.derive_server_key(1))).all()
    assert (rows != undersample(labels, rng.derive_server_key(2))).any()
    assert undersample(np.zeros(0, np.int64), rng.derive_server_key(1)).tolist() == []
    assert undersample(np.array([3, 3]), rng.derive_server_key(1)).tolist() == [0, 1]
