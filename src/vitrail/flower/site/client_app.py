"""A site as a Flower ClientApp."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from vitrail.errors import ConfigError, RunError
from vitrail.flower.coordinator.grid_link import unwrap_bytes, wrap_bytes
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_errors import SEE_SITE_LOG
from vitrail.flower.site.site_server import SiteServer

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer one message with what this node's own file says about its data."""
    try:
        config = SiteConfig.open(str(context.node_config["vitrail-site"]))
    except ConfigError as err:  # Flower sends the words of an error, and these name a path
        raise RunError(f"the site's own file cannot be used; {SEE_SITE_LOG}") from err
    raw = unwrap_bytes(message)
    if not raw:  # an unauthenticated federation asks its nodes who they are
        return Message(wrap_bytes(config.name.encode()), reply_to=message)
    seeded = bool(context.node_config.get("vitrail-seeded", False))
    keys = context.node_config.get("vitrail-keys")
    server = SiteServer(config, seeded, None if keys is None else NodeSigner(Path(str(keys))))
    return Message(wrap_bytes(server.answer(raw)), reply_to=message)
