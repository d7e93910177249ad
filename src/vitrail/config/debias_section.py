"""`[debias]`: what is done about a bias that an audit found, as data like everything else."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from vitrail.config.section import Count, NonNegative, Positive, Section

Remedy = Literal["mask", "penalize", "weigh", "leave-out", "mix", "harmonize"]
Unit = Annotated[int, Field(ge=0)]
_BY_NUMBER: frozenset[Remedy] = frozenset({"mask", "penalize"})
OF_PROTOTYPES: frozenset[Remedy] = _BY_NUMBER | {"mix"}


class Suspicion(Section):
    """`[[debias.findings]]`: a class of a site that is biased, by an audit or by an expert."""

    site: str
    """The site that brought the bias."""
    label: str
    """The class."""
    score: NonNegative = 0.0
    """The audit's score, in standard errors."""
    prototypes: tuple[Unit, ...] = ()
    """The prototypes of that class that look at the suspected place, by number."""
    look: tuple[float, ...] = ()
    """How the class looks at the other sites, for harmonize: tone, power by frequency, light and
    colors, as the audit writes them."""


class Debias(Section):
    """`[debias]`: remedies against a bias; `vitrail run --debias AUDIT.json` fills it in."""

    remedies: tuple[Remedy, ...] = ()
    """mask, penalize, weigh, leave-out, mix, harmonize; several may be named."""
    findings: tuple[Suspicion, ...] = ()
    """See `[[debias.findings]]`."""
    rounds: Count = 1
    """The last so many of `run.rounds` are for mask and penalize."""
    epochs: Count = 12
    """Epochs in which the last layer is trained again, after mask, penalize and mix."""
    lr: Positive = 1e-3
    """Its learning rate."""
    strength: NonNegative = 0.1
    """Weight of the similarity to named prototypes in the loss, for penalize."""

    @model_validator(mode="after")
    def _check_complete(self) -> Debias:
        if self.remedies and not self.findings:
            raise ValueError("debias.remedies need debias.findings, what is to be remedied")
        if self.by_number and not self.units:
            raise ValueError(
                f"debias.remedies = {sorted(self.by_number)} needs the numbers of prototypes, and "
                "the findings name none: choose weigh, leave-out or mix"
            )
        if "harmonize" in self.remedies and not any(one.look for one in self.findings):
            raise ValueError(
                "debias.remedies = ['harmonize'] needs to know how the class looks elsewhere, and "
                "the findings do not tell: take `look` from an audit, or choose weigh or leave-out"
            )
        return self

    @property
    def by_number(self) -> frozenset[Remedy]:
        """The remedies that go by the numbers of prototypes."""
        return _BY_NUMBER & set(self.remedies)

    @property
    def last_rounds(self) -> int:
        """How many rounds at the end belong to a remedy."""
        return self.rounds if self.by_number else 0

    @property
    def units(self) -> tuple[int, ...]:
        """Every prototype that is named, once."""
        return tuple(sorted({unit for one in self.findings for unit in one.prototypes}))

    @property
    def suspected(self) -> tuple[str, ...]:
        """The sites that are named, once."""
        return tuple(dict.fromkeys(one.site for one in self.findings))

    @property
    def left_out(self) -> frozenset[str]:
        """The sites that take no part."""
        return frozenset(self.suspected if "leave-out" in self.remedies else ())

    def factor(self, site: str) -> float:
        """What a site's weight is multiplied by: 1 / (1 + its largest score)."""
        if "weigh" not in self.remedies:
            return 1.0
        return 1 / (1 + max((one.score for one in self.findings if one.site == site), default=0.0))
