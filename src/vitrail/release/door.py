"""The door: collects what the declaration lets out, passes the defenses, writes the ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from vitrail.errors import RunError
from vitrail.local.session import Context, Site
from vitrail.local.terms import Terms
from vitrail.release.defense import Defense
from vitrail.release.frames import on_manifold
from vitrail.release.ledger import Ledger
from vitrail.release.message import Schema, digest
from vitrail.release.update import Update

NO_GUARANTEE = "empirical: no formal guarantee"


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
            terms = terms.joined(defense.train(site, ctx))
        return terms

    def release(
        self,
        site: Site,
        schema: Schema,
        extra: Mapping[str, Tensor],
        metrics: Mapping[str, float | None],
        ctx: Context,
        message: str,
    ) -> Update:
        """Make the update of this turn. `message` is the digest of what it answers."""
        answered = self.ledger.answered(ctx.round, message)
        counts = {"examples": len(site.rows.train), "steps": site.result.steps, **site.counts}
        update = Update(
            site=self.site,
            round=ctx.round,
            stage=ctx.stage,
            tensors=on_manifold(self._collect(site, schema, extra), site, schema),
            counts={name: counts[name] for name in schema.counts},
            metrics={name: metrics[name] for name in schema.metrics if name in metrics},
        )
        passed: list[dict[str, object]] = []
        for defense in self.defenses:
            update, figures = defense.apply(update, site, ctx)
            passed.append(_passed(defense, figures))
        if self.defenses:
            update = replace(update, tensors=on_manifold(update.tensors, site, schema))
        if not answered:
            self._record(update, schema, passed, message)
        return update

    def enroll(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Let the facts a method asks for before the first round leave, once, with their line."""
        if not any(line.get("kind") == "enroll" for line in self.ledger.lines()):
            line = {"kind": "enroll", "facts": dict(facts), "guarantee": NO_GUARANTEE}
            self.ledger.write(line)
        return dict(facts)

    def tell(self, kind: str, figures: Mapping[str, Mapping[str, object]]) -> None:
        """Let what a site found out about its classes leave: one line that names the figures.

        The same figures told again are no new release and get no new line.
        """
        told = json.dumps(figures, sort_keys=True, allow_nan=False).encode()
        digest = hashlib.blake2b(told, digest_size=8).hexdigest()
        lines = self.ledger.lines()
        if not any(line.get("kind") == kind and line.get("id") == digest for line in lines):
            self.ledger.write(
                {
                    "kind": kind,
                    "id": digest,
                    "classes": len(figures),
                    "figures": sorted({name for each in figures.values() for name in each}),
                    "bytes": len(told),
                    "guarantee": NO_GUARANTEE,
                }
            )

    def lend(self, kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Let a model of the site's own leave, because the site agreed: one line, once a model."""
        found = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        mark = digest({"kind": kind}, found)
        lines = self.ledger.lines()
        if not any(line.get("kind") == kind and line.get("id") == mark for line in lines):
            self.ledger.write(
                {
                    "kind": kind,
                    "id": mark,
                    "tensors": [[name, list(tensor.shape)] for name, tensor in found.items()],
                    "bytes": sum(t.numel() * t.element_size() for t in found.values()),
                    "guarantee": NO_GUARANTEE,
                }
            )
        return found

    def _collect(
        self, site: Site, schema: Schema, extra: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        values = site.model.values.detach().to("cpu", copy=True)
        own = {f"model/{name}": tensor for name, tensor in site.model.layout.views(values).items()}
        declared = {field.name for field in schema.up}
        undeclared = [name for name in extra if name not in declared]
        if undeclared:
            raise RunError(f"{undeclared[0]!r} was not declared and does not leave {self.site}")
        sources = {**own, **{name: tensor.detach().cpu() for name, tensor in extra.items()}}
        return {field.name: sources[field.name] for field in schema.up}

    def _record(
        self, update: Update, schema: Schema, passed: list[dict[str, object]], message: str
    ) -> None:
        """One line a release; the list of tensors stands once, under its own digest."""
        tensors = [[field.name, list(field.shape)] for field in schema.up]
        declaration = hashlib.blake2b(repr(tensors).encode(), digest_size=8).hexdigest()
        if not self._declared(declaration):
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
                "guarantee": NO_GUARANTEE,
            }
        )

    def _declared(self, declaration: str) -> bool:
        path = self.ledger.path
        if not path.exists():
            return False
        return f'"id":"{declaration}"'.encode() in path.read_bytes()[:1_000_000]


def _passed(defense: Defense, figures: Mapping[str, float]) -> dict[str, object]:
    """What the ledger says of one defense in one release."""
    return {
        "name": defense.name,
        "formal": defense.formal,
        "parameters": defense.parameters(),
        "figures": dict(figures),
    }
