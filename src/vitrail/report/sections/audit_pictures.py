"""Pictures of an audit's findings, kept at the site they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.audit.counterfactual.finding_pictures import PICTURES, FindingExample
from vitrail.audit.federation_view import Audit
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.explain.evidence import Box
from vitrail.files import read_tensors, write_json, write_tensors
from vitrail.report.pages.audit_evidence import FindingPicture
from vitrail.report.run_record import AUDIT
from vitrail.runs.opened_run import Run

_FILE = "audit-pictures.safetensors"


def keep_audit(run: Run, audit: Audit, examples: Sequence[FindingExample]) -> Path:
    """Keep an audit for the report: its numbers in the run folder, pictures at each site."""
    by_site: dict[str, list[FindingPicture]] = {}
    for picture in map(FindingPicture.from_example, examples):
        by_site.setdefault(picture.site, []).append(picture)
    for site, pictures in by_site.items():
        tensors: dict[str, Tensor] = {}
        for at, picture in enumerate(pictures):
            tensors |= {f"{at}/{name}": pixels for name, pixels in picture.pictures.items()}
            tensors |= {f"{at}/map/{model}": map_ for model, (_, map_) in picture.maps.items()}
        meta = {"sights": [_make_meta(picture) for picture in pictures]}
        write_tensors(SiteFolder(run.path, site).path / _FILE, tensors, meta)
    file = run.path / AUDIT
    write_json(file, audit.to_json())
    return file


def _make_meta(picture: FindingPicture) -> dict[str, Any]:
    return {
        "label": picture.label,
        "other": picture.other,
        "undone": picture.undone,
        "region": None if picture.region is None else list(picture.region),
        "said": {
            name: {model: list(answer) for model, answer in answers.items()}
            for name, answers in picture.answers.items()
        },
        "boxes": {model: list(box) for model, (box, _) in picture.maps.items()},
    }


def read_finding_pictures(run: Run, sites: Sequence[str]) -> list[FindingPicture]:
    """The pictures that were kept at some sites; nothing of any other site is read."""
    pictures = []
    for site in sites:
        file = SiteFolder(run.path, site).path / _FILE
        if file.is_file():
            tensors, meta = read_tensors(file)
            for at, entry in enumerate(meta["sights"]):
                pictures.append(_parse_finding_picture(site, tensors, at, entry))
    return pictures


def _parse_finding_picture(
    site: str, tensors: Mapping[str, Tensor], at: int, entry: Mapping[str, Any]
) -> FindingPicture:
    region = entry["region"]
    return FindingPicture(
        site,
        entry["label"],
        entry["other"],
        entry["undone"],
        None if region is None else _to_box(region),
        {name: tensors[f"{at}/{name}"] for name in PICTURES},
        {
            n: {m: (w[0], float(w[1])) for m, w in answers.items()}
            for n, answers in entry["said"].items()
        },
        {m: (_to_box(box), tensors[f"{at}/map/{m}"]) for m, box in entry["boxes"].items()},
    )


def _to_box(edges: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (int(edge) for edge in edges)
    return x0, y0, x1, y1
