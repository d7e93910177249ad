"""A site as a Flower ClientApp."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from vitrail.errors import ConfigError, RunError
from vitrail.flower.grid import unwrapped, wrapped
from vitrail.flower.home import Home
from vitrail.flower.station import Station
from vitrail.flower.trouble import MORE
from vitrail.flower.vouch import NodeVouch

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer one message with what this node's own file says about its data."""
    try:
        home = Home.open(str(context.node_config["vitrail-site"]))
    except ConfigError as err:  # Flower sends the words of an error, and these name a path
        raise RunError(f"the site's own file cannot be used; {MORE}") from err
    raw = unwrapped(message)
    if not raw:  # an unauthenticated federation asks its nodes who they are
        return Message(wrapped(home.name.encode()), reply_to=message)
    seeded = bool(context.node_config.get("vitrail-seeded", False))
    keys = context.node_config.get("vitrail-keys")
    station = Station(home, seeded, None if keys is None else NodeVouch(Path(str(keys))))
    return Message(wrapped(station.answer(raw)), reply_to=message)
