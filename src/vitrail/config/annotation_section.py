"""`[[data.annotations]]`: what people drew on images: regions that never count or never leave."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from vitrail.config.section import Section, Share
from vitrail.errors import ConfigError

Corners = tuple[Share, Share, Share, Share]
WHOLE: Corners = (0.0, 0.0, 1.0, 1.0)
ANNOTATIONS_FILE = "annotations.json"


class Annotation(Section):
    """`[[data.annotations]]`: a region, of one image or of all, and what it may be used for."""

    box: Corners = WHOLE
    """[x0, y0, x1, y1], as shares of width and height of what the network sees."""
    image: str = ""
    """The name of an image; left out: every image."""
    site: str = ""
    """Whose images; left out: everybody's."""
    use: Literal["nothing", "training"] = "nothing"
    """nothing: it never counts (burned-in text, markers). training: it never leaves the site."""
    note: str = ""
    """Why."""
    by: str = ""
    """Who drew it."""
    at: str = ""
    """When."""

    @model_validator(mode="after")
    def _check_box(self) -> Annotation:
        x0, y0, x1, y1 = self.box
        if not (x0 < x1 and y0 < y1):
            raise ValueError(f"the box {list(self.box)} is empty: x0 < x1 and y0 < y1")
        if self.is_whole and self.use == "nothing":
            raise ValueError("a whole image that never counts is left out of the data instead")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether all of the image is meant."""
        return self.box == WHOLE

    def holds_at(self, site: str) -> bool:
        """Whether it is about a site's images."""
        return self.site in ("", site)


def read_annotations(file: Path) -> tuple[Annotation, ...]:
    """The annotations of a JSON file, as the live pages write it."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        lines = stored["annotations"]
        if not isinstance(lines, list):
            raise ValueError("its annotations are no list")
        return parse_annotations(lines)
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise ConfigError(
            f"this is no file of annotations ({err})",
            where=str(file),
            hint="`vitrail serve` writes one; docs/how-to/annotate-images.md shows its form.",
        ) from None


def parse_annotations(lines: Sequence[Mapping[str, Any]]) -> tuple[Annotation, ...]:
    """Annotations from what JSON or TOML holds."""
    try:
        return tuple(
            Annotation.model_validate_json(json.dumps(line), strict=True) for line in lines
        )
    except ValidationError as err:
        raise ValueError(err.errors()[0]["msg"]) from None
