"""`[policy]` of a site's file: which terms this site never agrees to, whoever proposes them.

The site's own word, checked at the site before an image is read. A line that is left out allows
everything.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from vitrail.config.section import Section

Unit = Literal["image", "patient", "site"]
Share = Annotated[float, Field(ge=0, le=1)]


class SitePolicy(Section):
    """What terms must keep to."""

    epsilon: Annotated[float, Field(gt=0)] | None = None
    """The largest epsilon of a run; with it, terms without a proof are refused."""
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The largest delta of a run."""
    lifetime_epsilon: Annotated[float, Field(gt=0)] | None = None
    """The largest epsilon over all runs on one image, or on one patient where they are known."""
    lifetime_delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The delta at which all runs are added up."""
    units: tuple[Unit, ...] | None = None
    """Whom a proof must hide to count: "image", "patient", "site"."""
    mechanisms: tuple[str, ...] | None = None
    """Which mechanisms count as a proof, by the names of the defenses."""
    methods: tuple[str, ...] | None = None
    """The methods that may be run here."""
    images: bool = True
    """Whether images may leave, or anything else that is kept one by one instead of in a sum."""
    histograms: bool = True
    """Whether the number of images of each class may leave, and which classes have none."""
    audits: bool = True
    """Whether tables for the others' audits may leave."""
    model_share: Share | None = None
    """The largest share of the model's numbers that may leave in a round."""
    rounds: Annotated[int, Field(ge=1)] | None = None
    """The most rounds of a run."""
    secure_sum: bool = False
    """Whether updates may leave under the masks of secure sums only."""
    cohort: Annotated[int, Field(ge=1)] | None = None
    """The least number of sites in a round that counts."""
    largest_weight: Share | None = None
    """The largest share of one site, this one or another, in a sum."""
    signers: tuple[str, ...] = ()
    """Who must have signed the terms, by the names of public keys in the site's folder of keys."""

    @property
    def is_empty(self) -> bool:
        """Whether every line is left out."""
        return self == SitePolicy()

    def describe(self) -> list[str]:
        """The lines that say something, as they are written."""
        return [f"policy.{name} = {_write(value)}" for name, value in self if _says(name, value)]


def _says(name: str, value: Any) -> bool:
    return bool(value != SitePolicy.model_fields[name].get_default(call_default_factory=True))


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else f"{value}"


def classify_unit(unit: str) -> Unit:
    """Whom a mechanism's own words for its unit hide."""
    words = unit.lower()
    if "patient" in words:
        return "patient"
    return "image" if "image" in words else "site"
