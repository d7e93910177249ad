"""Using a trained model on new images: probabilities, row by row, in bounded memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from vitrail.config.schema import Data
from vitrail.data.annotated_images import hide_common_regions
from vitrail.data.decoding.decode import Decoder, Payload, UnreadableError, limit_pixels
from vitrail.data.decoding.payload import map_ordered, read_payloads
from vitrail.data.decoding.resize import resize_image
from vitrail.data.records import Problem, Record, Records
from vitrail.errors import DataError
from vitrail.files import write_text
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.new_images import describe_new_depth, find_images
from vitrail.runs.opened_run import Run

Pixels = npt.NDArray[np.uint8]

CHUNK = 64
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS = ("path", "prediction", "error")


@dataclass(frozen=True)
class Predictions:
    """One row per image that was found. A broken one has an error, and NaN as probabilities."""

    names: tuple[str, ...]
    probabilities: npt.NDArray[np.float32]  # [N, classes]
    classes: tuple[str, ...]
    errors: tuple[str, ...]  # "" where there is none
    problems: tuple[Problem, ...] = ()  # files that were not even looked at, and why
    note: str | None = None  # what had to be assumed about these images

    def __len__(self) -> int:
        return len(self.names)

    @property
    def failed(self) -> int:
        """How many images could not be read."""
        return sum(bool(error) for error in self.errors)

    @property
    def labels(self) -> list[str | None]:
        """The most probable class of each image, None for a broken one."""
        best = np.nan_to_num(self.probabilities, nan=-1.0).argmax(axis=1)
        return [None if e else self.classes[i] for i, e in zip(best, self.errors)]

    def csv(self) -> str:
        """A table: path, prediction, a probability for each class, error.

        Text that a spreadsheet would take for a formula gets a quote in front. A class that is
        called like one of the other columns gets "class " in front.
        """
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        heads = [f"class {name}" if name in _COLUMNS else name for name in self.classes]
        writer.writerow(["path", "prediction", *map(escape_cell, heads), "error"])
        for name, label, row, error in zip(
            self.names, self.labels, self.probabilities, self.errors
        ):
            numbers = [""] * len(row) if error else [f"{value:.6f}" for value in row.tolist()]
            words = [escape_cell(text) for text in (name, label or "", error)]
            writer.writerow([words[0], words[1], *numbers, words[2]])
        return buffer.getvalue()

    def write(self, path: Path) -> None:
        """Write the table as a CSV file in UTF-8."""
        write_text(path, self.csv())


def escape_cell(text: str) -> str:
    """A cell that no spreadsheet computes: a quote before what would start a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def predict(
    run: Run, path: str | Path, site: str | None = None, overrides: Iterable[str] = ()
) -> Predictions:
    """Probabilities for one image, a folder of images at any depth, or any data source.

    Images are brought to the run's size and channels, as in training. `site` chooses a site's
    own model; `overrides` are `data.key=value` for sources that need options.
    """
    model = run.model(site)
    records, data = find_images(run, Path(path), overrides)
    names = tuple(row.name for row in records.rows)
    probabilities = np.full((len(names), len(model.classes)), np.nan, np.float32)
    errors = [""] * len(names)
    for rows, pixels, broken in _batches(records, data):
        if rows:
            probabilities[rows] = predict_probabilities(model, np.stack(pixels))
        for row, reason in broken.items():
            errors[row] = reason
    note = describe_new_depth(run, data)
    return Predictions(names, probabilities, model.classes, tuple(errors), records.problems, note)


def predict_probabilities(model: DeployedModel, pixels: Pixels) -> npt.NDArray[np.float32]:
    """Probabilities [N, classes] of uint8 images [N, H, W, C]."""
    return torch.softmax(predict_logits(model, pixels), dim=1).numpy()


def predict_logits(model: DeployedModel, pixels: Pixels, chunk: int = CHUNK) -> torch.Tensor:
    """Logits [N, classes] of uint8 images [N, H, W, C], a few at a time."""
    logits = [torch.empty(0, len(model.classes))]
    with torch.inference_mode():
        for start in range(0, len(pixels), chunk):
            part = torch.from_numpy(np.array(pixels[start : start + chunk]))
            logits.append(model(part.permute(0, 3, 1, 2)))
    return torch.cat(logits).clone()


def read_images(run: Run, path: Path, most: int) -> Pixels:
    """The first images at `path` that can be read, uint8 [N, H, W, C] at the run's size."""
    records, data = find_images(run, path)
    pixels: list[Pixels] = []
    for image in _images(records.rows[:most], records.decoder, data):
        if isinstance(image, UnreadableError):
            continue
        pixels.append(image)
    if not pixels:
        raise DataError("no image here can be read", where=str(path), hint="Give other images.")
    return np.stack(pixels)


def _batches(
    records: Records, data: Data
) -> Iterator[tuple[list[int], list[Pixels], dict[int, str]]]:
    """Row numbers and pixels of what could be read, and the reasons of what could not."""
    rows: list[int] = []
    pixels: list[Pixels] = []
    broken: dict[int, str] = {}
    for row, image in enumerate(_images(records.rows, records.decoder, data)):
        if isinstance(image, UnreadableError):
            broken[row] = str(image)
        else:
            rows.append(row)
            pixels.append(image)
        if len(rows) == CHUNK:
            yield rows, pixels, broken
            rows, pixels, broken = [], [], {}
    yield rows, pixels, broken


def _images(
    rows: Sequence[Record], decoder: Decoder, data: Data
) -> Iterator[Pixels | UnreadableError]:
    """Every image as uint8 [H, W, C] at the run's size, grey or RGB as the run wants it."""
    side, depth = int(data.image_size or 0), int(data.channels or 3)

    def work(item: Payload) -> Pixels:
        decoder.probe(item, data)
        picture = decoder.picture(item, data, side).convert("L" if depth == 1 else "RGB")
        square = np.asarray(resize_image(picture, side, data.resize), np.uint8)
        return hide_common_regions(square.reshape(side, side, depth), data.annotations)

    with limit_pixels(data.max_pixels):
        yield from map_ordered(work, read_payloads(rows))
