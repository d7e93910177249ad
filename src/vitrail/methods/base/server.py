"""The server's side of a run: the global model, the method's state, and who takes part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitrail.errors import RunError
from vitrail.local.session import Context, State
from vitrail.methods.base.server_trainer import ServerTrainer
from vitrail.models.flat import Layout, Region
from vitrail.release.asset import Asset
from vitrail.rng import Key, Stream


@dataclass
class Server:
    """What a method's code at the server may touch.

    `values` is the global model as one flat vector (evaluated and saved); `sent` is what the
    sites received this round, which some methods choose to be different; `start` is the model
    of round 0. `assets` is what all sites build on beside the messages: whatever is put there
    goes to each site once. `trainer` is there for methods with `server_data`. `secret` is the
    root of draws that sites must not know, though they know `run.seed`.
    """

    layout: Layout
    shared: Region
    arrives: tuple[str, ...]  # model tensors that go down
    values: Tensor
    state: State = field(default_factory=dict)
    sent: Tensor = field(default_factory=lambda: torch.empty(0))
    roster: dict[str, dict[str, float]] = field(default_factory=dict)
    start: Tensor = field(default_factory=lambda: torch.empty(0))
    assets: dict[str, Asset] = field(default_factory=dict)
    trainer: ServerTrainer | None = None
    secret: Key | None = None

    def make_secret_stream(self, ctx: Context, *purpose: str) -> Stream:
        """Draws of this round that no site can repeat; whatever they hide must be part of their
        purpose, so that a round that is played again with another sum has other draws."""
        if self.secret is None:
            raise RunError("this server keeps no secret, so it can hide nothing from the sites")
        return self.secret.at("round", ctx.round, *purpose).stream()

    @property
    def required_trainer(self) -> ServerTrainer:
        """The trainer, which must be there."""
        if self.trainer is None:
            raise RunError(
                "the server has nothing to train with",
                where="method.name",
                hint='A method that trains at the server says on what: server_data = "public".',
            )
        return self.trainer

    def list_asset_digests(self) -> dict[str, str]:
        """What all sites build on beside the messages, by name."""
        return {name: asset.digest for name, asset in sorted(self.assets.items())}

    def assemble_site_model(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """A site's whole model as one vector: what was sent, and its own tensors over it."""
        values = self.sent.clone()
        views = self.layout.views(values)
        for name, tensor in tensors.items():
            views[name].copy_(tensor)
        return values

    def make_model_message(self, values: Tensor | None = None) -> dict[str, Tensor]:
        """The model message; `values` replaces the global model for methods that send another."""
        flat = self.values if values is None else values
        self.sent = flat.clone()
        views = self.layout.views(self.sent)
        return {f"model/{name}": views[name] for name in self.arrives}

    def write(self, tensors: dict[str, Tensor]) -> None:
        """Overwrite tensors of the global model by name."""
        views = self.layout.views(self.values)
        for name, tensor in tensors.items():
            views[name].copy_(tensor)
