"""What a linear layer gives away by arithmetic: its input, and from that an image.

For a layer y = Wx + b the gradients obey dL/dW_i = dL/db_i x, so x = (dL/dW_i) / (dL/db_i) for
any output i (Phong et al. 2018, eprint 2017/715). Where the first layer is linear, x is the
image. Where the last one is, x is the pooled features, and an image with those features is
searched for.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vitrail.attack.attack import ATTACKS
from vitrail.attack.inversion.gradient_matching import total_variation
from vitrail.attack.inversion.inversion_attack import InversionAttack, Recovery
from vitrail.attack.inversion.inverting_gradients import draw_first_guess, require_labels
from vitrail.attack.inversion.search import search
from vitrail.attack.inversion.victim import compute_patches
from vitrail.attack.job import Job
from vitrail.attack.scene import Scene
from vitrail.config.schema import Count, NonNegative, Positive, Section
from vitrail.errors import RunError
from vitrail.models.network import Network

_LAST = ("head", "fc", "classifier")


class AnalyticOptions(Section):
    """`[attack.analytic]`."""

    iterations: Count = 500
    """Steps of the search for an image with the recovered features."""
    lr: Positive = 0.1
    """The size of a step."""
    tv: NonNegative = 1e-2
    """Weight of the total variation."""
    start: Positive = 0.3
    """Spread of the first guess, in halves of the pixel range."""


def recover_linear_input(weight: Tensor, bias: Tensor, rows: Tensor) -> Tensor:
    """x = dW_i / db_i for gradients [k, out, in] and [k, out], at outputs i [k, n]: [k, n, in]."""
    k = torch.arange(len(weight))[:, None]
    divisor = bias[k, rows]
    safe = torch.where(divisor == 0, torch.ones_like(divisor), divisor)
    return weight[k, rows] / safe[..., None]


def find_first_layer(network: nn.Module, pixels: int) -> str | None:
    """The first layer that has weights, if it is linear over all pixels and has a bias."""
    for name, module in network.named_modules():
        if next(module.parameters(recurse=False), None) is not None:
            fits = isinstance(module, nn.Linear) and module.in_features == pixels
            return name if fits and module.bias is not None else None
    return None


@ATTACKS.register("analytic")
class Analytic(InversionAttack):
    """Arithmetic first: the input of a linear layer; a search only from features to pixels."""

    summary = "the input of the first or last linear layer by division, then an image for it"
    paper = "Phong et al. 2018, eprint 2017/715"
    needs = "gradients"
    Options = AnalyticOptions

    def recover(self, scene: Scene, job: Job) -> Recovery:
        """Exact pixels where the first layer is linear, else images with the right features."""
        turn = scene.turns[0]
        turn.recipe.need_gradient(self.name, scene.sites[0])
        layer = find_first_layer(scene.network, int(torch.Size(scene.shape).numel()))
        if layer is not None:
            return self._pixels(scene, layer, job)
        labels = require_labels(scene, self.name)
        for name in _LAST:
            weight, bias = (turn.directions.get(f"{name}.{leaf}") for leaf in ("weight", "bias"))
            if weight is not None and bias is not None and weight.dim() == 3:
                wanted = recover_linear_input(weight, bias, labels)
                return self._search(scene, wanted, labels, job)
        raise RunError(
            "analytic needs a linear layer with a bias, and none was released",
            where="--attacks",
            hint="Use ig.",
        )

    def _pixels(self, scene: Scene, layer: str, job: Job) -> Recovery:
        """Of all outputs, those with the largest bias gradients, one for each image."""
        directions = scene.turns[0].directions
        weight, bias = directions[f"{layer}.weight"], directions[f"{layer}.bias"]
        if scene.count > bias.shape[1]:
            raise RunError(
                f"{scene.count} images cannot be told apart by {bias.shape[1]} outputs",
                where="--images",
            )
        rows = bias.abs().topk(scene.count, dim=1).indices
        x = recover_linear_input(weight, bias, rows).view(len(bias), scene.count, *scene.shape)
        zero = torch.zeros(len(bias))
        return Recovery(scene.pixels(x), scene.labels, zero, scene.threat, 1, job.seconds)

    def _search(self, scene: Scene, wanted: Tensor, labels: Tensor, job: Job) -> Recovery:
        """Images [k, n, ...] whose features are the recovered ones, up to total variation."""
        low, high = scene.box
        sent = dict(scene.turns[0].sent)
        length = wanted.square().sum(2).clamp_min(1e-12)
        options = self.options

        def objective(x: Tensor) -> tuple[Tensor, Tensor]:
            z = compute_last_input(scene.network, sent, x.flatten(0, 1)).view_as(wanted)
            gap = ((z - wanted).square().sum(2) / length).mean(1)
            return gap + options.tv * total_variation(x), gap

        result = search(
            draw_first_guess(scene, range(len(scene.sites)), job, options.start),
            objective,
            lambda x: torch.minimum(torch.maximum(x, low), high),
            job,
            options.iterations,
            options.lr,
        )
        return Recovery(
            scene.pixels(result.x),
            labels,
            result.loss,
            scene.threat,
            result.iterations,
            job.seconds,
        )


class _Features(nn.Module):
    """A network up to the input of its last linear layer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Images to what the last layer is given, [N, features]."""
        net = self.network
        if isinstance(net, Network):
            return net.head.reduce(compute_patches(net, x)).flatten(1)
        layer = next(m for n in _LAST if (m := getattr(net, n, None)) is not None)
        caught: list[Tensor] = []
        handle = layer.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
        try:
            net(x)
        finally:
            handle.remove()
        return caught[0].flatten(1)


def compute_last_input(network: nn.Module, sent: dict[str, Tensor], x: Tensor) -> Tensor:
    """What the last layer of the sent model is given for images [N, C, H, W]."""
    named = {f"network.{name}": tensor for name, tensor in sent.items()}
    features: Tensor = functional_call(_Features(network), named, (x,))
    return features
