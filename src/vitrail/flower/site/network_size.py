"""How large a network would be that a coordinator proposes, before any of it is built here."""

from __future__ import annotations

import os

import torch

from vitrail.config import Loaded
from vitrail.flower.site.limits import SiteLimits
from vitrail.flower.site.site_errors import Refusal
from vitrail.methods import make_method
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key

_BYTES_EACH = 4 * 4  # weights, gradients, the optimizer's moments, a message: float32
_SHARE_OF_MACHINE = 0.5


def count_numbers(loaded: Loaded) -> int:
    """The numbers of a configuration's network, without memory for any of them."""
    config = loaded.config
    method = make_method(config, loaded.source)
    model = config.model.model_copy(update={"weights": None, "runtime": "torch"})
    key = derive_server_key(config.run.seed).at("init")
    data = config.data
    with torch.device("meta"):
        network, _ = make_network(
            model, method.model, int(data.channels or 3), len(data.classes or ()), key
        )
    return sum(tensor.numel() for tensor in network.state_dict().values())


def check_network_size(loaded: Loaded, limits: SiteLimits) -> None:
    """Refuse a network that this site could not train; nobody was asked about it yet."""
    numbers = count_numbers(loaded)
    if numbers * _BYTES_EACH > _find_memory(limits):
        raise Refusal(
            f"the network of these terms ({numbers:,} numbers) is too large for this site"
        )


def _find_memory(limits: SiteLimits) -> float:
    """Bytes that a network may fill: the site's own limit, or half of the machine."""
    if limits.memory_gib is not None:
        return limits.memory_gib * 2**30
    return _SHARE_OF_MACHINE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
