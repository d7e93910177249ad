"""By what the lifetime ledger knows images and patients again: salted digests.

Of an image it is the digest of its file, or of its array as the source has it, whatever size a run
reads it with; of a patient that of the name. A copy that was encoded anew escapes; where patients
are known, all their images count as one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vitrail.data.image_set import ImageSet
from vitrail.local.inputs import Rows
from vitrail.rng import Key


@dataclass(frozen=True)
class ImageKeys:
    """A key for each image, which copies share, and the images of every patient that is known.

    `tested` are those of images that a run looks at and does not train on: figures about them
    leave with a run that has no proof.
    """

    images: tuple[str, ...] = ()
    patients: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    complete: bool = False  # whether it is known of every image whose it is
    tested: tuple[str, ...] = ()

    def look_at(self, others: ImageKeys) -> ImageKeys:
        """These, in a run that looks at some others."""
        names = sorted({*self.patients, *others.patients})
        patients = {
            name: tuple(sorted({*self.patients.get(name, ()), *others.patients.get(name, ())}))
            for name in names
        }
        return replace(self, patients=patients, tested=others.images)


def list_keys(images: ImageSet, rows: Rows, originals: Iterable[bytes], secret: Key) -> ImageKeys:
    """The keys of some images, whose originals come in the order of the rows."""
    salt = secret.at("lifetime of an image").secret()
    keys, patients, unknown = list[str](), dict[str, list[str]](), 0
    for row, content in zip(rows.tolist(), originals, strict=True):
        keys.append(_digest(salt, b"image", content))
        name = "" if images.patients is None else str(images.patients[row])
        unknown += not name
        if name:
            patients.setdefault(_digest(salt, b"patient", name.encode()), []).append(keys[-1])
    listed = {patient: tuple(sorted(set(own))) for patient, own in patients.items()}
    return ImageKeys(tuple(keys), listed, bool(keys) and not unknown)


def _digest(salt: bytes, kind: bytes, content: bytes) -> str:
    return hashlib.blake2b(kind + content, key=salt, digest_size=12).hexdigest()
