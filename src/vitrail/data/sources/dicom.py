"""DICOM images, by class folder or manifest; needs the extra `dicom`.

Stored values become physical ones by rescale slope and intercept, and 8 bits by
`data.dicom.scale`: `window` clips to center ± width / 2 (the config's, else the file's),
`percentile` to the image's 0.5th and 99.5th percentile, `full` to the range of the stored
bits; `auto` is the window where there is one, else percentiles. MONOCHROME1 is inverted.
"""

from __future__ import annotations

import hashlib
import importlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from vitrail.config.schema import Data
from vitrail.data.decoding.decode import (
    Decoder,
    Header,
    Payload,
    UnreadableError,
    check_size,
    refuse_special,
)
from vitrail.data.decoding.deflated import refuse_inflated
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Record, Records
from vitrail.data.sources.class_folders import read_class_folders
from vitrail.data.sources.manifest import read_manifest
from vitrail.errors import ConfigError, DataError
from vitrail.rng import Key

_SUFFIXES = frozenset({".dcm", ".dicom", ".dic"})
_PERCENTILES = (0.5, 99.5)


@SOURCES.register("dicom")
def dicom(data: Data, path: Path, key: Key) -> Records:
    """DICOM files; PatientID serves to split by patient and is kept as a keyed digest only."""
    import_pydicom()
    if (data.dicom.center is None) != (data.dicom.width is None):
        raise ConfigError("a window has a center and a width: give both", where="data.dicom")
    if path.is_file():
        records = read_manifest(data, path)
    else:
        records = read_class_folders(path, is_dicom, data.folders)
    rows = [replace(row, patient=_patient(row, key)) for row in records.rows]
    if any(row.patient is None for row in rows):
        rows = _fill_patients(rows)
    return replace(records, rows=rows, decoder=Decoder(_probe, _picture))


def import_pydicom() -> Any:
    """pydicom, imported only when it is needed."""
    try:
        import pydicom
    except ImportError as err:
        raise DataError(
            "DICOM files need the package pydicom",
            where="data.source",
            hint="Install it with `pip install 'vitrail[dicom]'`.",
        ) from err
    return pydicom


def is_dicom(path: Path) -> bool:
    """By its suffix, or without one by the mark at byte 128."""
    if path.suffix.casefold() in _SUFFIXES:
        return True
    if path.suffix and not path.suffix[1:].isdigit():
        return False
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def _read(payload: Payload, **options: Any) -> Any:
    if isinstance(payload, np.ndarray):
        raise UnreadableError("is an array, not a DICOM file")
    if isinstance(payload, Path):
        refuse_special(payload)
    try:
        refuse_inflated(payload)
        source = io.BytesIO(payload) if isinstance(payload, bytes) else str(payload)
        return import_pydicom().dcmread(source, **options)
    except FileNotFoundError as err:
        raise UnreadableError("there is no such file", "missing") from err
    except UnreadableError:
        raise
    except Exception as err:  # a damaged header fails in many ways
        raise UnreadableError(f"is no readable DICOM file ({str(err)[:100]})") from err


def _patient(row: Record, key: Key) -> str | None:
    """The digest of the manifest's patient or the file's PatientID."""
    who = row.patient
    if who is None and isinstance(row.image, Path):
        try:
            header = _read(row.image, stop_before_pixels=True, specific_tags=["PatientID"])
            who = str(header.get("PatientID") or "").strip() or None
        except UnreadableError:
            return None
    if who is None:
        return None
    salt = hashlib.blake2b(str(key.at("patient").integer()).encode(), key=key.root, digest_size=32)
    return hashlib.blake2b(who.encode(), key=salt.digest(), digest_size=12).hexdigest()


def _fill_patients(rows: list[Record]) -> list[Record]:
    """Without any patient there is no column; an unnamed one among others is his own."""
    if all(row.patient is None for row in rows):
        return rows
    return [
        row if row.patient is not None else replace(row, patient=f"unnamed {i}")
        for i, row in enumerate(rows)
    ]


def _probe(payload: Payload, data: Data) -> Header:
    header = _read(payload, stop_before_pixels=True)
    width, height = int(header.get("Columns") or 0), int(header.get("Rows") or 0)
    frames = int(header.get("NumberOfFrames") or 1)
    if frames > 1:
        raise UnreadableError(f"has {frames} frames; export the one to use")
    check_size(width, height, data)
    kind = str(header.get("PhotometricInterpretation") or "")
    grey = int(header.get("SamplesPerPixel") or 1) == 1
    if grey and not kind.startswith("MONOCHROME"):
        raise UnreadableError(f"has the pixel kind {kind or 'unknown'}, not MONOCHROME or RGB")
    return Header(width, height, grey, f"DICOM {kind}")


def _picture(payload: Payload, data: Data, size: int) -> Image.Image:  # noqa: ARG001
    _probe(payload, data)
    header = _read(payload)
    try:
        pixels = np.asarray(_pixels(header))
        if pixels.ndim == 3:
            return Image.fromarray(np.ascontiguousarray(pixels.astype(np.uint8)))
        return Image.fromarray(to_eight_bits(pixels, header, data))
    except UnreadableError:
        raise
    except Exception as err:  # missing codecs, cut-off pixels, absurd headers
        reason = " ".join(str(err).split())[:120]
        raise UnreadableError(f"has pixels that cannot be decoded ({reason})") from err


def _pixels(header: Any) -> Any:
    """The stored values; YBR colors as RGB, which only newer versions of pydicom do."""
    if str(header.PhotometricInterpretation).startswith("YBR"):
        return importlib.import_module("pydicom.pixels").pixel_array(header)
    return header.pixel_array


def to_eight_bits(stored: Any, header: Any, data: Data) -> npt.NDArray[np.uint8]:
    """Stored grey values to 8 bits by the rules at the top of this file."""
    slope = float(header.get("RescaleSlope", 1) or 1)
    intercept = float(header.get("RescaleIntercept", 0) or 0)
    values = np.asarray(stored, np.float64) * slope + intercept
    low, high = _range(values, header, data, slope, intercept)
    scaled: npt.NDArray[np.float64] = (values - low) / max(high - low, 1e-9)
    if str(header.PhotometricInterpretation) == "MONOCHROME1":
        scaled = 1 - scaled
    eight: npt.NDArray[np.uint8] = np.rint(scaled.clip(0, 1) * 255).astype(np.uint8)
    return eight


def _range(
    values: npt.NDArray[np.float64], header: Any, data: Data, slope: float, intercept: float
) -> tuple[float, float]:
    rule = data.dicom
    center, width = rule.center, rule.width
    if center is None and header.get("WindowCenter") is not None:
        center, width = _first_value(header.WindowCenter), _first_value(header.get("WindowWidth"))
    window = center is not None and width is not None and width > 0
    if rule.scale == "full":
        bits = int(header.get("BitsStored", 16))
        signed = int(header.get("PixelRepresentation", 0)) == 1
        ends = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        low, high = sorted(end * slope + intercept for end in ends)
        return low, high
    if rule.scale in ("auto", "window") and window:
        return float(center or 0) - float(width or 0) / 2, float(center or 0) + float(
            width or 0
        ) / 2
    if rule.scale == "window":
        raise UnreadableError("names no window, and data.dicom gives none")
    low, high = np.percentile(values, _PERCENTILES)
    return float(low), float(high)


def _first_value(value: Any) -> float | None:
    """The first of several windows."""
    if value is None:
        return None
    several = isinstance(value, (list, tuple)) or type(value).__name__ == "MultiValue"
    return float(value[0] if several else value)
