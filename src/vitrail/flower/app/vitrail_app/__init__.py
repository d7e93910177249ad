"""The Flower app of Vitrail: both ends live in the installed package."""

from vitrail.flower.client_app import app as client
from vitrail.flower.server_app import app as server

__all__ = ["client", "server"]
