"""Public data sets as they lie on disk, each on a small made copy of its layout."""

import json

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from vitrail import rng
from vitrail.config.schema import Data
from vitrail.data import SOURCES, load_with_problems
from vitrail.data.inspect.guess import guess_data
from vitrail.errors import DataError

KEY = rng.derive_server_key(1)


def picture(path, value=0, size=(16, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 0)).save(path, "PNG")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def read(root, source, **options):
    data = Data(source=source, path=str(root), cache="memory", **options)
    assert guess_data(root).source == source
    return load_with_problems(data, root, KEY)[0]


def test_cifar10(tmp_path):
    root = tmp_path / "cifar-10-batches-bin"
    root.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), np.uint8)
    labels = np.array([3, 9, 0, 3], np.uint8)
    raw = np.concatenate([labels[:, None], pixels.reshape(4, -1)], axis=1)
    raw[:2].tofile(root / "data_batch_1.bin")
    raw[2:3].tofile(root / "data_batch_2.bin")
    raw[3:].tofile(root / "test_batch.bin")
    for place in (root, tmp_path):
        images = read(place, "cifar10")
        assert (images.images == pixels.transpose(0, 2, 3, 1)).all()
        assert [images.classes[i] for i in images.labels] == ["cat", "truck", "airplane", "cat"]
        assert images.splits.tolist() == ["train"] * 3 + ["test"]
    (root / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(DataError, match=r"test_batch.bin: is cut off"):
        read(root, "cifar10")


@pytest.mark.parametrize(
    ("source", "names"),
    [("cifar10", ("data_batch_1", "batches.meta")), ("cifar100", ("train", "test", "meta"))],
)
def test_pickled_cifar_is_refused(tmp_path, source, names):
    for name in names:
        (tmp_path / name).write_bytes(b"\x80\x02}")
    with pytest.raises(DataError, match="Use the binary version"):
        read(tmp_path, source)


def test_cifar100(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3072), np.uint8)
    raw = np.concatenate([[[1, 2], [0, 0], [1, 1]], pixels], axis=1).astype(np.uint8)
    raw[:2].tofile(tmp_path / "train.bin")
    raw[2:].tofile(tmp_path / "test.bin")
    write(tmp_path / "fine_label_names.txt", "apple\nbee\ncup\n")
    write(tmp_path / "coarse_label_names.txt", "living\nthings\n")
    fine = read(tmp_path, "cifar100")
    assert fine.classes == ("apple", "bee", "cup") and fine.labels.tolist() == [2, 0, 1]
    assert fine.extra["coarse"].tolist() == [1, 0, 1]
    coarse = read(tmp_path, "cifar100", label="coarse")
    assert coarse.classes == ("living", "things") and coarse.labels.tolist() == [1, 0, 1]


def test_tiny_imagenet(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for wnid in ("n01", "n02", "n03"):
        for i in range(2):
            picture(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG")
        boxes = f"{wnid}_0.JPEG\t1\t2\t9\t10\n{wnid}_1.JPEG\t0\t0\t15\t15\n"
        write(root / "train" / wnid / f"{wnid}_boxes.txt", boxes)
    picture(root / "val" / "images" / "val_0.JPEG", 70)
    write(root / "val" / "val_annotations.txt", "val_0.JPEG\tn02\t1\t1\t5\t6\n")
    write(root / "words.txt", "n01\tcrane\nn02\tgoldfish, Carassius auratus\nn03\tcrane, bird\n")
    images = read(root, "tiny-imagenet")
    assert images.classes == ("crane (n01)", "goldfish", "crane (n03)")
    assert len(images) == 7 and images.splits.tolist() == ["train"] * 6 + ["test"]
    assert images.labels[-1] == 1 and images.boxes[-1].tolist() == [1, 1, 5, 6]
    assert images.boxes[0].tolist() == [1, 2, 9, 10]


def test_cub200(tmp_path):
    root = tmp_path / "CUB_200_2011"
    files = ["001.Auk/a 1.jpg", "002.Bee_eater/b.jpg", "002.Bee_eater/c.jpg"]
    for file in files:
        picture(root / "images" / file, size=(40, 20))
    write(root / "images.txt", "".join(f"{i + 1} {f}\n" for i, f in enumerate(files)))
    write(root / "image_class_labels.txt", "1 1\n2 2\n3 2\n")
    write(root / "classes.txt", "1 001.Auk\n2 002.Bee_eater\n")
    write(root / "train_test_split.txt", "1 1\n2 0\n3 1\n")
    write(root / "bounding_boxes.txt", "1 10.0 0.0 20.0 10.0\n2 0 0 40 20\n3 12 2 4 4\n")
    write(root / "parts" / "part_locs.txt", "1 1 20.0 10.0 1\n1 2 0.0 0.0 0\n2 2 0 0 1\n")
    images = read(tmp_path, "cub200", image_size=20)
    assert images.classes == ("Auk", "Bee_eater") and images.labels.tolist() == [0, 1, 1]
    assert images.splits.tolist() == ["train", "test", "train"]
    assert images.boxes.tolist() == [[0, 0, 20, 10], [0, 0, 20, 20], [2, 2, 6, 6]]
    assert images.extra["parts"].shape == (3, 2, 2)
    assert images.extra["parts"][0, 0].tolist() == [10, 10]
    assert np.isnan(images.extra["parts"][1:]).all()  # cut away, or not told


def test_stanford_dogs(tmp_path):
    root = tmp_path / "dogs"
    for breed in ("n1-Chihuahua", "n2-Shih-Tzu"):
        for i in range(2):
            picture(root / "Images" / breed / f"{breed[:2]}_{i}.jpg")
            xml = (
                "<annotation><object><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>9</xmax>"
                "<ymax>12</ymax></bndbox></object></annotation>"
            )
            write(root / "Annotation" / breed / f"{breed[:2]}_{i}", xml)
    write(root / "Annotation" / "n1-Chihuahua" / "n1_1", "<!DOCTYPE x [<!ENTITY a 'b'>]><x/>")
    plain = read(root, "stanford-dogs")
    assert plain.splits is None and plain.classes == ("Chihuahua", "Shih-Tzu")
    assert plain.boxes[0].tolist() == [2, 3, 9, 12] and np.isnan(plain.boxes[1]).all()
    cells = {s: np.array([[f"n1-Chihuahua/n1_{i}.jpg"], [f"n2-Shih-Tzu/n2_{i}.jpg"]], object)
             for i, s in enumerate(("train", "test"))}  # fmt: skip
    for split, files in cells.items():
        savemat(root / f"{split}_list.mat", {"file_list": files})
    assert read(root, "stanford-dogs").splits.tolist() == ["train", "test"] * 2
    (root / "train_list.mat").write_bytes(b"not a mat file")
    with pytest.raises(DataError, match="MATLAB file cannot be read"):
        read(root, "stanford-dogs")


def cars(path, rows, with_class=True):
    fields = [
        "bbox_x1",
        "bbox_y1",
        "bbox_x2",
        "bbox_y2",
        *(["class"] if with_class else []),
        "fname",
    ]
    kinds = [(name, object) for name in fields]
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"annotations": np.array([tuple(row) for row in rows], kinds)})


def test_stanford_cars(tmp_path):
    for i in (1, 2):
        picture(tmp_path / "cars_train" / f"{i}.jpg", i)
    picture(tmp_path / "cars_test" / "1.jpg", 9)
    names = np.array(["AM General Hummer SUV 2000", "Ram C/V Cargo Van"], object)
    kit = tmp_path / "devkit"
    cars(kit / "cars_train_annos.mat", [(1, 2, 8, 9, 2, "1.jpg"), (0, 0, 16, 16, 1, "2.jpg")])
    savemat(kit / "cars_meta.mat", {"class_names": names})
    images = read(tmp_path, "stanford-cars")
    assert images.classes == tuple(names) and images.labels.tolist() == [1, 0]
    assert images.boxes[0].tolist() == [1, 2, 8, 9] and (images.splits == "train").all()
    cars(kit / "cars_test_annos_withlabels.mat", [(1, 1, 2, 2, 2, "1.jpg")])
    assert read(tmp_path, "stanford-cars").splits.tolist() == ["train", "train", "test"]
    cars(kit / "cars_train_annos.mat", [(1, 2, 8, 9, 3, "1.jpg")])
    with pytest.raises(DataError, match="class 3 of 2"):
        read(tmp_path, "stanford-cars")
    cars(kit / "cars_train_annos.mat", [(1, 2, 8, 9, "1.jpg")], with_class=False)
    with pytest.raises(DataError, match="lacks a field"):
        read(tmp_path, "stanford-cars")


HEADER = "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Cardiomegaly,Edema\n"


@pytest.fixture
def chexpert(tmp_path):
    root = tmp_path / "CheXpert-v1.0-small"
    rows = ["1.0,,", ",1.0,-1.0", ",-1.0,1.0", ",0.0,"]
    lines = {"train": "", "valid": ""}
    for i, findings in enumerate(rows):
        part = "valid" if i == 3 else "train"
        file = f"{part}/patient0000{i // 2}/study1/view{i}_frontal.jpg"
        picture(root / file, i)
        lines[part] += f"CheXpert-v1.0-small/{file},Male,{50 + i},Frontal,AP,{findings}\n"
    for part, text in lines.items():
        write(root / f"{part}.csv", HEADER + text)
    return root


def test_chexpert(chexpert):
    images = read(chexpert, "chexpert", positive="Cardiomegaly")
    assert images.labels.tolist() == [0, 1, 0, 0] and images.classes == ("rest", "Cardiomegaly")
    assert images.findings == tuple(
        map(frozenset, ({"No Finding"}, {"Cardiomegaly"}, {"Edema"}, set()))
    )
    assert images.patients.tolist() == ["patient00000", "patient00000"] + ["patient00001"] * 2
    assert images.splits.tolist() == ["train"] * 3 + ["test"]
    assert images.extra["age"].tolist() == [50, 51, 52, 53] and images.extra["view"][0] == "AP"
    none = read(chexpert, "chexpert", positive="Cardiomegaly", negatives="none")
    assert len(none) == 3
    dropped = read(chexpert, "chexpert", positive="Cardiomegaly", uncertain="drop")
    assert dropped.labels.tolist() == [0, 1, 0] and dropped.extra["age"].tolist() == [50, 51, 53]
    with pytest.raises(DataError, match=r"data.positive.*Cardiomegaly, Edema"):
        read(chexpert, "chexpert")
    with pytest.raises(DataError, match="Did you mean 'Edema'"):
        read(chexpert, "chexpert", positive="Edma", uncertain="drop")


def test_femnist(tmp_path):
    def leaf(path, users):
        block = {u: {"x": np.full((len(y), 784), 0.2).tolist(), "y": y} for u, y in users.items()}
        sizes = [len(y) for y in users.values()]
        write(path, json.dumps({"users": list(users), "num_samples": sizes, "user_data": block}))

    leaf(tmp_path / "data" / "train" / "a.json", {"f0": [0, 61], "f1": [10]})
    leaf(tmp_path / "data" / "test" / "a.json", {"f0": [36], "f2": []})
    leaf(tmp_path / "data" / "all_data" / "a.json", {"f0": [0, 61, 36], "f1": [10]})
    images = read(tmp_path / "data", "femnist")
    assert images.images.shape == (4, 28, 28, 1) and (images.images == 51).all()
    assert images.classes == ("0", "A", "a", "z")
    assert images.sites.tolist() == ["f0", "f0", "f0", "f1"]
    assert images.splits.tolist() == ["test", "train", "train", "train"]
    one = tmp_path / "one.json"
    leaf(one, {"u": [1, 2]})
    assert read(one, "femnist").splits is None
    leaf(one, {"u": [1, 62]})
    with pytest.raises(DataError, match="class 62"):
        read(one, "femnist")
    for bad in ("[]", "{", '{"users": ["u"], "user_data": {"u": {"x": [[1, 2]], "y": [0]}}}'):
        one.write_text(bad)
        with pytest.raises(DataError, match="is not a LEAF file"):
            read(one, "femnist")


@pytest.mark.parametrize("kind", ["txt", "csv"])
def test_celeba(tmp_path, kind):
    names = [f"00000{i}.jpg" for i in range(4)]
    for i, name in enumerate(names):
        picture(tmp_path / "img_align_celeba" / name, i)
    marks = ["1", "-1", "-1", "1"]
    if kind == "txt":
        body = "".join(f"{n}  1 {m}\n" for n, m in zip(names, marks))
        write(tmp_path / "list_attr_celeba.txt", f"4\nBald Smiling\n{body}")
        people = "".join(f"{n} {i // 2}\n" for i, n in enumerate(names))
        write(tmp_path / "identity_CelebA.txt", people)
        parts = "".join(f"{n} {p}\n" for n, p in zip(names, "0012"))
        write(tmp_path / "list_eval_partition.txt", parts)
    else:
        body = "".join(f"{n},1,{m}\n" for n, m in zip(names, marks))
        write(tmp_path / "list_attr_celeba.csv", f"image_id,Bald,Smiling\n{body}")
        parts = "".join(f"{n},{p}\n" for n, p in zip(names, "0012"))
        write(tmp_path / "list_eval_partition.csv", f"image_id,partition\n{parts}")
    images = read(tmp_path, "celeba", label="Smiling")
    assert images.classes == ("not Smiling", "Smiling") and images.labels.tolist() == [1, 0, 0, 1]
    assert images.splits.tolist() == ["train"] * 3 + ["test"]
    if kind == "txt":
        assert images.patients.tolist() == ["0", "0", "1", "1"]
    with pytest.raises(DataError, match=r"no column 'Smilng' \(data.label\).*'Smiling'"):
        read(tmp_path, "celeba", label="Smilng")


@pytest.mark.parametrize(
    "source",
    sorted({*SOURCES} - {"embedded", "folder", "manifest", "parquet", "npz", "dicom"}),
)
def test_an_empty_folder_is_none_of_them(tmp_path, source):
    with pytest.raises(DataError):
        load_with_problems(Data(source=source, path=str(tmp_path)), tmp_path, KEY)
