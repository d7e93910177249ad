"""The door: collects what the declaration lets out, passes the defenses, writes the ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitrail.data.patients import PatientCount
from vitrail.errors import RunError
from vitrail.local.session import Context, Site
from vitrail.local.terms import Terms
from vitrail.release.accounting.promise import (
    NO_GUARANTEE,
    NOTHING,
    Promise,
    describe_guarantee,
    read_events,
)
from vitrail.release.defenses.defense import Defense
from vitrail.release.frame_release import project_to_manifold
from vitrail.release.ledger import Ledger
from vitrail.release.masker import Masker
from vitrail.release.message import Schema, digest
from vitrail.release.setting import MODEL
from vitrail.release.update import Update
from vitrail.rng import derive_site_key


class Door:
    """One per site. Nothing else makes an `Update`."""

    def __init__(
        self, site: str, ledger: Ledger, defenses: tuple[Defense, ...], names: tuple[str, ...]
    ) -> None:
        self.site = site
        self.ledger = ledger
        self.defenses = defenses
        self.names = names

    def terms(self, site: Site, ctx: Context) -> Terms:
        """What the defenses claim of local training, joined in order."""
        terms = Terms()
        for defense in self.defenses:
            terms = terms.combine(defense.train(site, ctx))
        return terms

    def release(
        self,
        site: Site,
        schema: Schema,
        extra: Mapping[str, Tensor],
        metrics: Mapping[str, float | None],
        ctx: Context,
        message: str,
        masker: Masker | None = None,
        keep: Callable[[Update], None] | None = None,
    ) -> Update:
        """Make the update of this turn. `message` is the digest of what it answers.

        What is made for a `masker` must pass `mask` before it leaves. `keep` gets the update
        before the ledger says that it left.
        """
        answered = self.ledger.has_answered(ctx.round, message)
        counts = {"examples": len(site.rows.train), "steps": site.result.steps, **site.counts}
        update = Update(
            site=self.site,
            round=ctx.round,
            stage=ctx.stage,
            tensors=project_to_manifold(self._collect(site, schema, extra), site, schema),
            counts={name: counts[name] for name in schema.counts},
            metrics={name: metrics[name] for name in schema.metrics if name in metrics},
        )
        passed: list[dict[str, object]] = []
        for defense in self.defenses:
            update, figures = defense.apply(update, site, ctx)
            passed.append(_describe_defense(defense, figures))
        if self.defenses:
            update = replace(update, tensors=project_to_manifold(update.tensors, site, schema))
        offered = (defense.promise(update, site, ctx) for defense in self.defenses)
        promises = [promise for promise in offered if promise is not None]
        spends = self._spend(promises, ctx.round, message)
        if spends is None:
            update, spends = (
                _return_received(update, site),
                self._spend([], ctx.round, message) or [],
            )
            passed.append({"name": "budget", "formal": True, "figures": {"withheld": 1.0}})
        if masker is not None:
            masker.prepare(update)
        if keep is not None:
            keep(update)
        if not answered:
            self._remark(site, update)
            details: dict[str, object] = {"spends": spends} if spends else {}
            if masker is not None:
                details |= {"bytes": masker.bytes, "masked": masker.describe(), "counts": {}}
            if spends:
                details["secret"] = "simulated" if self._is_simulated(site) else "own"
            beside = {field.name for field in schema.up if field.proved}
            remarks = [str(line["guarantee"]) for line in site.lines] if beside else []
            details["guarantee"] = _state_guarantee(update, promises, spends, beside, remarks)
            self._record(update, site, schema, passed, message, details)
        return update

    def mask(self, update: Update, masker: Masker) -> Update:
        """An update under its masks, ready to leave; each attempt after the first is a line."""
        lines = [line for line in self.ledger.lines() if line.get("round") == update.round]
        known = {str(line["masked"]["id"]) for line in lines if "masked" in line}
        masker.check_repeat(update.round, known)
        masked = masker.mask(update)
        if masker.id not in known:
            self.ledger.write(
                {
                    "kind": "repeat",
                    "round": update.round,
                    "stage": update.stage,
                    "bytes": masked.bytes,
                    "metrics": sorted(update.metrics),
                    "masked": masker.describe(),
                    "guarantee": next(x["guarantee"] for x in lines if x["kind"] == "release"),
                }
            )
        return masked

    def _is_simulated(self, site: Site) -> bool:
        """Whether the site's draws follow from the run's seed, as they do in simulation."""
        seeds = (defense.setting.config.run.seed for defense in self.defenses)
        return any(site.key.root == derive_site_key(seed, self.site).root for seed in seeds)

    def _spend(
        self, promises: list[Promise], round_: int, message: str
    ) -> list[dict[str, Any]] | None:
        """The lines of what this release costs on top of all before it; None: more than allowed.

        The release itself does not count as one before it when its message comes again.
        """
        if not promises:
            return []
        lines = [
            line
            for line in self.ledger.lines()
            if (line.get("round"), line.get("message")) != (round_, message)
        ]
        spends = []
        for promise in promises:
            spent = promise.epsilon(read_events(lines, promise.mechanism))
            if not promise.allows(spent):
                return None
            spends.append(promise.line(spent))
        return spends

    def enroll(
        self, facts: Mapping[str, float], patients: PatientCount | None = None
    ) -> dict[str, float]:
        """Let the facts a method asks for before the first round leave, once, with their line.

        Behind a formal mechanism none leaves: every site counts as one. The budget is written
        down instead, and how many images the largest patient has, if that is known.
        """
        formal = [defense for defense in self.defenses if defense.formal]
        released = dict.fromkeys(facts, 1.0) if formal else dict(facts)
        if not any(line.get("kind") == "enroll" for line in self.ledger.lines()):
            for defense in formal:
                forecast = defense.forecast(self.site, int(facts["examples"]))
                self.ledger.write({"kind": "budget", **forecast})
            if formal and patients is not None:
                self.ledger.write({"kind": "patients", **patients.to_json()})
            guarantee = NOTHING if formal else NO_GUARANTEE
            self.ledger.write({"kind": "enroll", "facts": released, "guarantee": guarantee})
        return released

    def release_findings(self, kind: str, figures: Mapping[str, Mapping[str, object]]) -> None:
        """Let what a site found out about its classes leave: one line that names the figures.

        The same figures told again are no new release and get no new line.
        """
        text = json.dumps(figures, sort_keys=True, allow_nan=False).encode()
        digest = hashlib.blake2b(text, digest_size=8).hexdigest()
        lines = self.ledger.lines()
        if not any(line.get("kind") == kind and line.get("id") == digest for line in lines):
            self.ledger.write(
                {
                    "kind": kind,
                    "id": digest,
                    "classes": len(figures),
                    "figures": sorted({name for values in figures.values() for name in values}),
                    "bytes": len(text),
                    "guarantee": NO_GUARANTEE,
                }
            )

    def release_model(self, kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Let a model of the site's own leave, because the site agreed: one line, once a model."""
        copies = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        mark = digest({"kind": kind}, copies)
        lines = self.ledger.lines()
        if not any(line.get("kind") == kind and line.get("id") == mark for line in lines):
            self.ledger.write(
                {
                    "kind": kind,
                    "id": mark,
                    "tensors": [[name, list(tensor.shape)] for name, tensor in copies.items()],
                    "bytes": sum(t.numel() * t.element_size() for t in copies.values()),
                    "guarantee": NO_GUARANTEE,
                }
            )
        return copies

    def _collect(
        self, site: Site, schema: Schema, extra: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        values = site.model.values.detach().to("cpu", copy=True)
        model = {
            f"model/{name}": tensor for name, tensor in site.model.layout.views(values).items()
        }
        declared = {field.name for field in schema.up}
        undeclared = [name for name in extra if name not in declared]
        if undeclared:
            raise RunError(f"{undeclared[0]!r} was not declared and does not leave {self.site}")
        sources = {**model, **{name: tensor.detach().cpu() for name, tensor in extra.items()}}
        return {field.name: sources[field.name] for field in schema.up}

    def _record(
        self,
        update: Update,
        site: Site,
        schema: Schema,
        passed: list[dict[str, object]],
        message: str,
        details: Mapping[str, object],
    ) -> None:
        """One line a release; the list of tensors stands once, under its own digest."""
        parts = {f"{MODEL}{spec.name}": spec.part for spec in site.model.layout.specs}
        tensors = [
            [f.name, list(update.tensors[f.name].shape), parts.get(f.name, "beside")]
            for f in schema.up
        ]
        declaration = hashlib.blake2b(repr(tensors).encode(), digest_size=8).hexdigest()
        if not self._is_declared(declaration):
            self.ledger.write({"kind": "declaration", "id": declaration, "tensors": tensors})
        self.ledger.write(
            {
                "kind": "release",
                "round": update.round,
                "stage": update.stage,
                "message": message,
                "declaration": declaration,
                "bytes": update.bytes,
                "counts": dict(update.counts),
                "metrics": sorted(update.metrics),
                "mechanism": list(self.names) or ["none"],
                "defenses": passed,
                **details,
            }
        )

    def _remark(self, site: Site, update: Update) -> None:
        """What phases have to say of their part of the release; before its own line, so that a
        crash in between loses nothing, and once."""
        known = self.ledger.lines() if site.lines else []
        for remark in site.lines:
            line = {"kind": "remark", "round": update.round, "stage": update.stage, **remark}
            if json.loads(json.dumps(line)) not in known:
                self.ledger.write(line)

    def _is_declared(self, declaration: str) -> bool:
        path = self.ledger.path
        if not path.exists():
            return False
        return f'"id":"{declaration}"'.encode() in path.read_bytes()[:1_000_000]


def _return_received(update: Update, site: Site) -> Update:
    """What a site sends that may not tell any more: what it received, and zeros beside it."""
    received = site.model.layout.views(site.received.detach().cpu())
    tensors = {
        name: received[name.removeprefix(MODEL)].clone()
        if name.startswith(MODEL)
        else torch.zeros_like(tensor)
        for name, tensor in update.tensors.items()
    }
    return replace(update, tensors=tensors)


def _state_guarantee(
    update: Update,
    promises: list[Promise],
    spends: list[dict[str, Any]],
    proved: Set[str],
    remarks: Sequence[str],
) -> str:
    """The guarantee of the whole update: one number that nobody covers makes it empirical.

    What is `proved` elsewhere is covered by the guarantees of the remarks, which are told too.
    """
    if not update.tensors and not update.counts and not update.metrics:
        return NOTHING
    if not promises:
        return NO_GUARANTEE
    bare = [*update.counts, *update.metrics]
    bare += [n for p in promises for n in p.uncovered(update.tensors) if n not in proved]
    if bare:
        return f"{NO_GUARANTEE}: {bare[0]!r} leaves without noise"
    guarantee = describe_guarantee(spends) if spends else NOTHING
    return "; beside the model: ".join([guarantee, *remarks])


def _describe_defense(defense: Defense, figures: Mapping[str, float]) -> dict[str, object]:
    """What the ledger says of one defense in one release."""
    return {
        "name": defense.name,
        "formal": defense.formal,
        "parameters": defense.parameters(),
        "figures": dict(figures),
    }
