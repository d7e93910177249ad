"""What was drawn on images, kept as `annotations.json` with name and time, at the site alone."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from vitrail.config.annotation_section import Annotation, read_annotations
from vitrail.errors import ConfigError
from vitrail.files import write_json

_MOST = 5000
_LOCK = threading.Lock()  # one process writes these files: the application


class AnnotationStore:
    """A file of annotations; every change is written at once."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> tuple[Annotation, ...]:
        """All of them, the newest last."""
        return read_annotations(self.file) if self.file.is_file() else ()

    def add(self, one: Annotation) -> None:
        """Keep one more."""
        with _LOCK:
            self._write((*self.read(), one))

    def remove(self, number: int, by: Annotation) -> None:
        """Take one away: it is named by its place and by what it says, so that two pages that are
        open at once never take another one away."""
        with _LOCK:
            drawn = list(self.read())
            if not 0 <= number < len(drawn) or drawn[number] != by:
                raise ConfigError("this annotation is no longer there: load the page again")
            self._write((*drawn[:number], *drawn[number + 1 :]))

    def set_withheld(
        self, site: str, shown: Collection[str], shared: Collection[str], by: str, at: str
    ) -> None:
        """Of the images that were shown, only those that were ticked may be shared."""
        with _LOCK:
            kept = [
                one
                for one in self.read()
                if not (is_withheld(one) and one.site == site and one.image in set(shared))
            ]
            known = {one.image for one in kept if is_withheld(one) and one.site == site}
            new = [
                Annotation(image=name, site=site, use="training", by=by, at=at)
                for name in shown
                if name not in shared and name not in known
            ]
            self._write((*kept, *new))

    def _write(self, drawn: Sequence[Annotation]) -> None:
        if len(drawn) > _MOST:
            raise ConfigError(f"there are more than {_MOST} annotations")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lines = [one.model_dump(mode="json", exclude_defaults=True) for one in drawn]
        write_json(self.file, {"annotations": lines})
        self.file.chmod(0o600)  # it names images


def is_withheld(one: Annotation) -> bool:
    """Whether it says that one whole image is not to be shared."""
    return one.use == "training" and one.is_whole and bool(one.image)
