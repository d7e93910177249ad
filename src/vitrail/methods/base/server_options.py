"""The options of methods that train at the server."""

from __future__ import annotations

from vitrail.config.schema import Count, Positive
from vitrail.methods.base.method import Options


class ServerOptions(Options):
    """Keys of `[method]` about what the server trains after each round."""

    steps: Count = 50
    """Steps of the server in a round."""
    server_batch: Count = 32
    """What each of them sees: public images, or what a generator makes."""
    server_lr: Positive = 0.001
    """Adam's rate; it starts fresh in each round."""
