"""Rows of a heads table on disk: which test images each model of each fold got right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config.load import Loaded
from vitrail.metrics.classification import Bools, Integers
from vitrail.runs.site_logits import SiteLogits

Place = tuple[str, str, int]  # data, partition, fold


@dataclass
class HeadsResults:
    """One JSON line for the images of a fold, and one for each model that answered them."""

    file: Path
    lines: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def open(cls, file: Path) -> HeadsResults:
        """What is there already."""
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        return cls(file, [json.loads(line) for line in text.splitlines()])

    def find(self, place: Place, row: str, digest: str) -> list[dict[str, Any]]:
        """The lines of one row at one place, if they were made by this configuration."""
        lines = [line for line in self.lines if get_place(line) == place and line.get("row") == row]
        return [line for line in lines if line["digest"] == digest]

    def add(self, line: Mapping[str, Any]) -> None:
        """Write a line, at once."""
        self.lines.append(dict(line))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line, separators=(",", ":")) + "\n")

    def add_images(self, place: Place, answers: SiteLogits) -> None:
        """The images of a fold in the order of their rows: label, site, and what sites train on."""
        if any(get_place(line) == place and "labels" in line for line in self.lines):
            return
        order = np.argsort(answers.rows)
        self.add(
            {
                **name_place(place),
                "rows": answers.rows[order].tolist(),
                "labels": answers.labels[order].tolist(),
                "site": answers.site[order].tolist(),
            }
        )

    def add_answers(
        self, place: Place, row: str, variant: str, digest: str, answers: SiteLogits
    ) -> None:
        """Which images of a fold a model got right, in the order of their rows."""
        order = np.argsort(answers.rows)
        right = (answers.logits.argmax(1) == answers.labels)[order]
        hits = "".join("1" if r else "0" for r in right)
        self.add(
            {**name_place(place), "row": row, "variant": variant, "digest": digest, "hits": hits}
        )


def name_place(place: Place) -> dict[str, Any]:
    """A place as the beginning of a line."""
    return dict(zip(("data", "partition", "fold"), place, strict=True))


def get_place(line: Mapping[str, Any]) -> Place:
    """The place of a line."""
    return str(line["data"]), str(line["partition"]), int(line["fold"])


def digest_cell(loaded: Loaded) -> str:
    """Of all that decides what a run does; images by their file's name, wherever that lies."""
    tree = loaded.config.model_dump(mode="json", exclude_defaults=True)
    tree["data"]["path"] = Path(tree["data"].get("path", "")).name
    for key in ("workers", "device", "plugins", "checkpoint_every"):
        tree.get("run", {}).pop(key, None)
    tree.get("model", {}).pop("runtime", None)
    return hashlib.blake2b(json.dumps(tree, sort_keys=True).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Answered:
    """One model's hits over all folds of some data, with the images they belong to."""

    hits: Bools
    labels: Integers
    site: Integers
    fold: Integers


def gather_answers(
    results: HeadsResults, partition: str
) -> dict[tuple[str, str], dict[str, Answered]]:
    """By (row, variant) and data: hits of all folds, the last line of each fold counting."""
    images = {get_place(line): line for line in results.lines if "labels" in line}
    last = {
        (line["row"], line["variant"], get_place(line)): line
        for line in results.lines
        if "row" in line and line["partition"] == partition
    }
    parts: dict[tuple[str, str], dict[str, list[tuple[int, dict[str, Any]]]]] = {}
    for (row, variant, place), line in last.items():
        parts.setdefault((row, variant), {}).setdefault(place[0], []).append((place[2], line))
    return {
        key: {data: _join(lines, images) for data, lines in by_data.items()}
        for key, by_data in parts.items()
    }


def _join(
    lines: list[tuple[int, dict[str, Any]]], images: Mapping[Place, dict[str, Any]]
) -> Answered:
    lines = sorted(lines, key=lambda pair: pair[0])
    of_fold = [images[get_place(line)] for _, line in lines]
    hits = [np.frombuffer(line["hits"].encode(), np.uint8) == ord("1") for _, line in lines]
    return Answered(
        hits=np.concatenate(hits),
        labels=np.concatenate([np.array(i["labels"], np.int64) for i in of_fold]),
        site=np.concatenate([np.array(i["site"], np.int64) for i in of_fold]),
        fold=np.repeat([fold for fold, _ in lines], [len(h) for h in hits]),
    )
