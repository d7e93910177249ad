"""Pulls that several methods share: additions to the flat gradient that see no data."""

from __future__ import annotations

from torch import Tensor

from vitrail.local.session import Site
from vitrail.local.terms import Pull
from vitrail.models.flat import FlatModel


def make_proximal_pull(site: Site, strength: float) -> Pull:
    """The gradient of (strength/2) |w - w_received|^2 over what travels."""
    shared, anchor = site.shared, site.shared.of(site.received).clone()

    def pull(model: FlatModel) -> None:
        shared.add_(model.grads, shared.of(model.values) - anchor, strength)

    return pull


def make_constant_pull(site: Site, value: Tensor) -> Pull:
    """Add the same vector to every gradient of what travels."""
    shared, value = site.shared, value.to(site.received.device)

    def pull(model: FlatModel) -> None:
        shared.add_(model.grads, value)

    return pull
