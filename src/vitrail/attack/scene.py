"""What lies on the attacker's table: updates that answer the same message, and what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from vitrail.attack.inversion.training_recipe import Recipe
from vitrail.attack.inversion.victim import Victim
from vitrail.attack.threat_model import Labels, Statistics, ThreatModel
from vitrail.data.normalize import Normalize

Named = Mapping[str, Tensor]


@dataclass(frozen=True)
class Turn:
    """One round: the model that was sent, and the direction of each of k sites' updates.

    A direction is (sent - received) / rate: the gradient, where the site took one step.
    `directions` holds tensors [k, ...] of what was trained and released; `released` whatever
    else came back, prototypes as they are and statistics included, each [k, ...].
    """

    round: int
    sent: Named
    directions: Named
    recipe: Recipe
    released: Named = field(default_factory=dict)

    def take(self, rows: Sequence[int]) -> Turn:
        """The same turn of some of the sites."""
        at = list(rows)
        return replace(
            self,
            directions={name: t[at] for name, t in self.directions.items()},
            released={name: t[at] for name, t in self.released.items()},
        )


@dataclass(frozen=True)
class Scene:
    """k sites that hold `count` images each, one or more turns, and the threat model."""

    network: nn.Module
    normalize: Normalize
    shape: tuple[int, int, int]  # channels, height, width
    classes: int
    sites: tuple[str, ...]
    turns: tuple[Turn, ...]
    count: int
    threat: ThreatModel
    labels: Tensor | None = None  # [k, count], where they are known

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """The smallest and largest value of a pixel as the network sees it, [C, 1, 1] each."""
        shift, scale = (torch.tensor(v)[:, None, None] for v in self._affine())
        return (0.0 - shift) / scale, (255.0 - shift) / scale

    def pixels(self, x: Tensor) -> Tensor:
        """What the network sees, back in pixels from 0 to 1."""
        shift, scale = (torch.tensor(v)[:, None, None] for v in self._affine())
        return ((x * scale + shift) / 255.0).clamp(0, 1)

    def seen(self, pixels: Tensor) -> Tensor:
        """Pixels from 0 to 1 as the network sees them."""
        shift, scale = (torch.tensor(v)[:, None, None] for v in self._affine())
        return (255.0 * pixels - shift) / scale

    def _affine(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.normalize.shift, self.normalize.scale

    def with_labels(self, labels: Tensor, how: Labels) -> Scene:
        """The same scene once the labels are there, and how the attacker came by them."""
        return replace(self, labels=labels, threat=replace(self.threat, labels=how))

    def take(self, rows: Sequence[int]) -> Scene:
        """The same scene with some of the sites."""
        at = list(rows)
        return replace(
            self,
            sites=tuple(self.sites[i] for i in at),
            turns=tuple(turn.take(at) for turn in self.turns),
            labels=None if self.labels is None else self.labels[at],
        )


def uses_batch_statistics(network: nn.Module) -> bool:
    """Whether some layer normalizes by statistics of the batch."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules())


def one_step(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    normalize: Normalize,
    classes: int,
    statistics: Statistics | None = None,
    steps: int = 1,
    lr: float = 0.1,
) -> Scene:
    """A scene made at hand: rows of images [k, n, C, H, W] and the update each row leads to.

    For trials of an attack on any module that gives logits. One step takes all n images of a
    row; several share them out in order. `statistics` defaults to those the module received,
    where it has any.
    """
    if statistics is None:
        statistics = "running" if uses_batch_statistics(network) else "none"
    names = [n for n, p in network.named_parameters() if p.requires_grad]
    images = int(x.shape[1])
    recipe = replace(
        Recipe.plain(names, lr, images, statistics),
        steps=steps,
        batch_size=max(1, -(-images // steps)),
    )
    sent = {n: t.detach().clone() for n, t in network.state_dict().items()}
    changes = Victim(network).changes(sent, recipe, x, y)
    threat = ThreatModel(
        learning_rate=lr,
        local_steps=steps,
        batch_size=recipe.batch_size,
        images=images,
        statistics=statistics,
    )
    return Scene(
        network=network,
        normalize=normalize,
        shape=(int(x.shape[2]), int(x.shape[3]), int(x.shape[4])),
        classes=classes,
        sites=tuple(f"image {i}" for i in range(len(x))),
        turns=(Turn(1, sent, {n: t.detach() for n, t in changes.items()}, recipe),),
        count=images,
        threat=threat,
        labels=y,
    )
