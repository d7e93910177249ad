"""The Flower app of Vitrail: both ends live in the installed package."""

from vitrail.flower.coordinator.server_app import app as server
from vitrail.flower.site.client_app import app as client

__all__ = ["client", "server"]
