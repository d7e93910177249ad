"""Secure aggregation at a site: the masks of one turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.aggregate.guard import Guard
from vitrail.config.schema import Aggregate
from vitrail.files import read_tensors, write_tensors
from vitrail.release.door import Door
from vitrail.release.masker import WithheldError
from vitrail.release.message import Schema
from vitrail.release.update import Update
from vitrail.rng import Key
from vitrail.secure_aggregation.masking import UpdateMasker
from vitrail.secure_aggregation.round_state import HELD_FILE
from vitrail.secure_aggregation.secure_sum import lift_update, list_spans, masked_schema
from vitrail.secure_aggregation.shared_noise import SharedNoise
from vitrail.secure_aggregation.site_steps import SiteSteps
from vitrail.secure_aggregation.steps import MaskRequest


@dataclass(frozen=True)
class MaskedAnswer:
    """What leaves a site in one turn: a masked update with a signature of whom it has masks with,
    or none and why it is `withheld`; `kept` says whether the site saved a state."""

    update: Update
    kept: bool
    signature: str = ""
    withheld: str = ""


@dataclass(frozen=True)
class SiteMasking:
    """What stands between the server and a site's update in one turn.

    `message` is the digest of what is answered and `sent` its tensors; `folder` is the site's own.
    The update itself stays there until the next round, so that a repeated attempt costs new masks
    and no new training, and tells nothing new. `noise` is what this site adds its share of, to
    the sum of a rule: the deviation in the sum, the colluders, the key of the draws, and the
    largest norm of what it adds.
    """

    round: int
    stage: str
    schema: Schema
    options: Aggregate
    request: MaskRequest
    message: str
    sent: Mapping[str, Tensor]
    steps: SiteSteps
    folder: Path
    noise: Callable[[str], Sequence[tuple[float, int, Key, float | None]]] = lambda _: ()

    @cached_property
    def masker(self) -> UpdateMasker:
        """The masks of this attempt. The site checks itself with the guard that the server would
        have, and lifts as the server would."""
        schema, sent, options = self.schema, self.sent, self.options
        guard = Guard(schema, sent, options.max_norm)
        expected = (self.steps.site, self.round, self.stage)
        return UpdateMasker(
            self.round,
            self.message,
            self.steps,
            self.request,
            masked_schema(schema, options).bytes_up,
            lift=lambda update, weight: lift_update(update, weight, schema, sent, options),
            refusal=lambda update, weight: guard.refusal(update, weight, expected, {}),
            noise=[
                SharedNoise(deviation, colluding, spans, key.at(rule), limit)
                for rule, spans in list_spans(schema, options).items()
                for deviation, colluding, key, limit in self.noise(rule)
            ],
        )

    def repeat(self, door: Door, answers: str) -> MaskedAnswer | None:
        """The reply to a message that was answered before, in this attempt or another one;
        `answers` is what the ledger calls it."""
        if not self._file.exists() or not door.ledger.has_answered(self.round, answers):
            return None
        packed, meta = read_tensors(self._file)
        if meta["message"] != self.message:
            return None
        tensors = _unpack(packed, meta["shapes"]) if "shapes" in meta else packed
        return self._mask(door, Update(tensors=tensors, **meta["update"]), bool(meta["kept"]))

    def answer(self, door: Door, update: Update, kept: bool) -> MaskedAnswer:
        """Keep the update at the site and send it under its masks."""
        described = {name: value for name, value in vars(update).items() if name != "tensors"}
        packed, shapes = _pack(update.tensors)
        meta = {"message": self.message, "kept": kept, "update": described, "shapes": shapes}
        write_tensors(self._file, packed, meta)
        return self._mask(door, update, kept)

    def withhold(self, err: WithheldError) -> MaskedAnswer:
        """No update, and the reason."""
        nothing = Update(self.steps.site, self.round, self.stage, {})
        return MaskedAnswer(nothing, False, withheld=str(err))

    def _mask(self, door: Door, update: Update, kept: bool) -> MaskedAnswer:
        try:
            masked = door.mask(update, self.masker)
            return MaskedAnswer(masked, kept, self.steps.sign_senders(self.request))
        except WithheldError as err:
            return self.withhold(err)

    @property
    def _file(self) -> Path:
        return self.folder / HELD_FILE


def _pack(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[list[Any]]]:
    """Tensors of one type as one: a file of many small ones takes longer to write than to mask."""
    parts: dict[str, list[Tensor]] = {}
    shapes = [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()]
    for tensor in tensors.values():
        parts.setdefault(str(tensor.dtype), []).append(tensor.detach().cpu().reshape(-1))
    return {kind: torch.cat(flat) for kind, flat in parts.items()}, shapes


def _unpack(packed: Mapping[str, Tensor], shapes: Sequence[Sequence[Any]]) -> dict[str, Tensor]:
    tensors, at = {}, dict.fromkeys(packed, 0)
    for name, kind, shape in shapes:
        size = math.prod(shape)
        tensors[name] = packed[kind][at[kind] : at[kind] + size].reshape(shape)
        at[kind] += size
    return tensors
