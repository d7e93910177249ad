"""DICOM pixels become 8 bits by the stated rules; a patient's name never stays."""

import builtins

import numpy as np
import pytest

from vitrail import rng
from vitrail.config.schema import Data, Dicom
from vitrail.data import load_with_problems
from vitrail.data.inspect.guess import guess_data
from vitrail.errors import ConfigError, DataError

pydicom = pytest.importorskip("pydicom")


def write(path, pixels, patient="Müller", kind="MONOCHROME2", bits=12, signed=0, **tags):
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    pixels = np.asarray(pixels)
    data.Rows, data.Columns = pixels.shape[:2]
    data.SamplesPerPixel = 3 if pixels.ndim == 3 else 1
    data.PhotometricInterpretation = kind
    data.BitsAllocated = 8 if pixels.dtype == np.uint8 else 16
    data.BitsStored = 8 if pixels.dtype == np.uint8 else bits
    data.HighBit = data.BitsStored - 1
    data.PixelRepresentation = signed
    data.PatientID = patient
    data.SpecificCharacterSet = "ISO_IR 192"
    if pixels.ndim == 3:
        data.PlanarConfiguration = 0
    for name, value in tags.items():
        setattr(data, name, value)
    data.PixelData = pixels.tobytes()
    data.save_as(str(path), enforce_file_format=True)


RAMP = np.linspace(0, 4095, 64).astype(np.uint16).reshape(8, 8)


def one(tmp_path, pixels=RAMP, rule=None, **tags):
    """The 8-bit version of one picture (the other class only fills the set)."""
    root = tmp_path / "d"
    write(root / "a" / "1.dcm", pixels, **tags)
    write(root / "b" / "1.dcm", pixels, **tags)
    data = Data(source="dicom", path=str(root), cache="memory", dicom=rule or Dicom())
    return load_with_problems(data, tmp_path, rng.derive_server_key(1))[0].images[0]


def literal(values, low, high):
    return np.rint(((values - low) / (high - low)).clip(0, 1) * 255)


def test_full_range_and_inversion(tmp_path):
    full = Dicom(scale="full")
    assert (one(tmp_path, rule=full)[..., 0] == literal(RAMP.astype(float), 0, 4095)).all()
    inverted = one(tmp_path, rule=full, kind="MONOCHROME1")[..., 0]
    assert (inverted == np.rint((1 - RAMP / 4095) * 255)).all()


def test_full_range_of_signed_values(tmp_path):
    signed = (RAMP.astype(np.int16) - 2048).astype(np.int16)
    seen = one(
        tmp_path, signed, Dicom(scale="full"), signed=1, RescaleSlope=-2, RescaleIntercept=10
    )
    assert (seen[..., 0] == literal(signed * -2.0 + 10, -2047 * 2 + 10, 2048 * 2 + 10)).all()


def test_windows_of_the_file_and_of_the_config(tmp_path):
    tags = {"WindowCenter": [1000, 5], "WindowWidth": [500, 5], "RescaleSlope": 2}
    values = RAMP * 2.0
    for scale in ("auto", "window"):
        assert (
            one(tmp_path, rule=Dicom(scale=scale), **tags)[..., 0] == literal(values, 750, 1250)
        ).all()
    mine = Dicom(center=4000, width=2000)
    assert (one(tmp_path, rule=mine, **tags)[..., 0] == literal(values, 3000, 5000)).all()


def test_percentiles_where_there_is_no_window(tmp_path):
    low, high = np.percentile(RAMP.astype(float), [0.5, 99.5])
    assert (one(tmp_path)[..., 0] == literal(RAMP.astype(float), low, high)).all()
    with pytest.raises(DataError, match="names no window"):
        one(tmp_path, rule=Dicom(scale="window"))
    with pytest.raises(ConfigError, match="give both"):
        one(tmp_path, rule=Dicom(center=3))
    assert (one(tmp_path, np.full((8, 8), 7, np.uint16)) == 0).all()  # constant, and no NaN


def test_color(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    assert (one(tmp_path, pixels, kind="RGB") == pixels).all()


def test_patients_are_digests_that_depend_on_the_key(tmp_path):
    root = tmp_path / "d"
    for i, who in enumerate(["Anna", "Anna", "Berta", ""]):
        write(root / "ab"[i % 2] / f"{i}", RAMP, patient=who)
    assert guess_data(root).source == "dicom"
    data = Data(source="dicom", path=str(root), cache="memory")
    images = load_with_problems(data, tmp_path, rng.derive_server_key(1))[0]
    by_name = dict(zip(images.names, images.patients))
    assert by_name["a/0"] == by_name["b/1"] != by_name["a/2"] and len(set(by_name.values())) == 3
    assert not any("Anna" in str(v) or "Berta" in str(v) for v in vars(images).values())
    other = load_with_problems(data, tmp_path, rng.derive_server_key(2))[0]
    assert other.patients[0] != images.patients[0]


def test_what_cannot_be_used(tmp_path):
    root = tmp_path / "d"
    write(root / "a" / "1.dcm", RAMP)
    write(root / "b" / "1.dcm", RAMP)
    write(root / "b" / "film.dcm", np.concatenate([RAMP, RAMP]), NumberOfFrames=2, Rows=8)
    (root / "b" / "text.dcm").write_text("hello")
    whole = (root / "a" / "1.dcm").read_bytes()
    (root / "b" / "cut.dcm").write_bytes(whole[:-40])
    write(root / "b" / "palette.dcm", RAMP, kind="PALETTE COLOR")
    data = Data(source="dicom", path=str(root), cache="memory", broken="skip")
    images, problems = load_with_problems(data, tmp_path, rng.derive_server_key(1))
    assert images.names.tolist() == ["a/1.dcm", "b/1.dcm"]
    said = {p.path: p.sentence for p in problems}
    assert set(said) == {"b/film.dcm", "b/text.dcm", "b/cut.dcm", "b/palette.dcm"}
    assert "2 frames" in said["b/film.dcm"] and "PALETTE" in said["b/palette.dcm"]
    small = data.model_copy(update={"max_pixels": 10})
    with pytest.raises(DataError):
        load_with_problems(small, tmp_path, rng.derive_server_key(1))


def test_a_manifest_of_dicom_files(tmp_path):
    for i in range(2):
        write(tmp_path / f"{i}.dcm", RAMP, patient=f"p{i}")
    (tmp_path / "m.csv").write_text("path,label\n0.dcm,x\n1.dcm,y\n")
    found = guess_data(tmp_path / "m.csv")
    assert found.source == "dicom"
    images = load_with_problems(found, tmp_path, rng.derive_server_key(1))[0]
    assert images.classes == ("x", "y") and len(set(images.patients)) == 2


def test_without_pydicom_one_sentence_says_how_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "pydicom":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r"pip install 'vitrail\[dicom\]'"):
        load_with_problems(
            Data(source="dicom", path=str(tmp_path)), tmp_path, rng.derive_server_key(1)
        )
