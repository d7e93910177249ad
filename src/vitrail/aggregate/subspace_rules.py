"""Means of frames: of subspaces through the sum of their projectors, and of frames as such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from vitrail.aggregate.rule import RULES, Group, Metrics, PerSiteRule, Rule, Tensors
from vitrail.config.schema import Aggregate
from vitrail.errors import ConfigError
from vitrail.geometry import canonicalize, grassmann, polar_factor
from vitrail.geometry.frames import align_frames
from vitrail.geometry.subspace_mean import Consensus
from vitrail.grid_noise import add_noise
from vitrail.release.message import Field
from vitrail.release.update import Update
from vitrail.rng import Stream

CLASS_COUNTS = "counts/classes"
AGREEMENT, DISTANCE = "agreement/", "distance"
_FRAMES = ("grassmann", "stiefel")
MAX_WATCHED_SITES = (
    64  # sites whose distance from the mean is measured; of more the frames are not kept
)


def select_frame_fields(fields: tuple[Field, ...], rule: str) -> tuple[Field, ...]:
    """The fields that hold frames; a rule for frames on anything else is an error."""
    for field in fields:
        if field.name != CLASS_COUNTS and field.geometry not in _FRAMES:
            raise ConfigError(
                f"rule {rule!r} averages frames, and {field.name!r} holds none",
                where="aggregate.rule",
                hint='Leave it at "mean", or choose a method with subspaces.',
            )
    return tuple(field for field in fields if field.name != CLASS_COUNTS)


def compute_agreement(
    field: str, gap: Tensor, consensus: Tensor, mean: Tensor, sites: Sequence[Tensor]
) -> tuple[Tensors, Metrics]:
    """How far the sites agree: by class as tensors beside the model, mean and least as figures.

    `sites` are the frames of those whose own can be seen, in the order they were accepted: how
    far each is from the mean (geodesic distance) comes as [sites, classes].
    """
    name = field.removeprefix("model/")
    tensors = {
        f"{AGREEMENT}{name}/eigengap": gap.to(torch.float32),
        f"{AGREEMENT}{name}/consensus": consensus.to(torch.float32),
    }
    if 0 < len(sites) <= MAX_WATCHED_SITES:
        away = [grassmann.geodesic_distance(frame.double(), mean.double()) for frame in sites]
        tensors[f"{AGREEMENT}{name}/{DISTANCE}"] = torch.stack(away).to(torch.float32)
    metrics: Metrics = {}
    for word, values in (("eigengap", gap), ("consensus", consensus)):
        if values.numel():
            metrics |= {f"{word}_mean": float(values.mean()), f"{word}_min": float(values.min())}
    return tensors, metrics


@RULES.register("grassmann")
class Grassmann(Rule):
    """The exact mean of subspaces: the top eigenspace of Xi = sum a_j U_j U_j^T.

    What is added up is the upper triangle of each projector, n (n + 1) / 2 numbers, so that a
    secure sum gives the same mean without showing any site's subspace. Where updates do come one
    by one, their frames are kept until the mean is known, to measure how far each is from it.
    """

    def __init__(self, group: Group, options: Aggregate) -> None:
        super().__init__(group, options)
        select_frame_fields(group.fields, "grassmann")  # before the first round, not in it
        self._seen: list[Tensors] = []

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """The packed projectors times the weight, and the weight of each class."""
        del sent
        fields = select_frame_fields(self.group.fields, "grassmann")
        if (
            len(self._seen) <= MAX_WATCHED_SITES
        ):  # one more than are measured says that there are too many
            self._seen.append({field.name: update.tensors[field.name] for field in fields})
        parts = []
        for field in fields:
            frames = update.tensors[field.name].to(torch.float64)
            weights = self.weights(update, weight, frames.shape[:-2])
            i, j = torch.triu_indices(frames.shape[-2], frames.shape[-2])
            packed = (frames[..., i, :] * frames[..., j, :]).sum(-1)
            parts += [(weights[..., None] * packed).reshape(-1), weights.reshape(-1)]
        return torch.cat(parts)

    def disturb(self, total: Tensor, deviation: float, source: Stream) -> Tensor:
        """Symmetric noise on the projectors; the weights are no secret.

        A number beside the diagonal stands for two, and gets 1/sqrt(2) of the noise.
        """
        noised, at = total.clone(), 0
        for field in select_frame_fields(self.group.fields, "grassmann"):
            n, lead = field.shape[-2], torch.Size(field.shape[:-2])
            i, j = torch.triu_indices(n, n)
            packed = noised[at : at + lead.numel() * len(i)].view(-1, len(i))
            for part, share in ((i == j, 1.0), (i != j, 0.5**0.5)):
                packed[:, part] = add_noise(packed[:, part], share * deviation, source)
            at += lead.numel() * (len(i) + 1)
        return noised

    def weights(self, update: Update, weight: float, shape: torch.Size) -> Tensor:
        """How much each frame of the update counts."""
        del update
        return torch.full(shape, weight, dtype=torch.float64)

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The eigenspaces, as the frames nearest to those that were sent; and the agreement."""
        del weight
        before, at = self.group.unpack(sent), 0
        tensors: Tensors = {}
        metrics: Metrics = {}
        for field in select_frame_fields(self.group.fields, "grassmann"):
            n, p = field.shape[-2:]
            lead = torch.Size(field.shape[:-2])
            size, count = lead.numel() * n * (n + 1) // 2, lead.numel()
            packed = total[at : at + size].view(*lead, -1)
            weights = total[at + size : at + size + count].view(lead)
            at += size + count
            silent = weights <= 0  # nobody speaks for this class: it stays as it was
            mean = packed / torch.where(silent, 1.0, weights)[..., None]
            frame, gap, consensus = _compute_eigenspace(mean, n, p)
            frame = torch.where(silent[..., None, None], before[field.name].double(), frame)
            tensors[field.name] = canonicalize(frame, before[field.name]).to(field.dtype)
            site_frames = [seen[field.name] for seen in self._seen]
            agreement, agreement_metrics = compute_agreement(
                field.name, gap, consensus, tensors[field.name], site_frames
            )
            tensors, metrics = tensors | agreement, metrics | agreement_metrics
        return tensors, metrics


def _compute_eigenspace(packed: Tensor, n: int, p: int) -> tuple[Tensor, Tensor, Tensor]:
    """The top p eigenvectors of symmetric matrices, the gap after them, and their mean value."""
    i, j = torch.triu_indices(n, n)
    xi = packed.new_zeros(*packed.shape[:-1], n, n)
    xi[..., i, j] = packed
    xi[..., j, i] = packed
    values, vectors = torch.linalg.eigh(xi)
    values = torch.cat([torch.zeros_like(values[..., :1]), values], -1) if p == n else values
    gap = values[..., -p] - values[..., -p - 1]
    return vectors[..., -p:], gap, values[..., -p:].mean(-1)


@RULES.register("grassmann-classes")
class GrassmannClasses(Grassmann):
    """The exact mean in which a site counts for a class by its images of that class.

    The counts travel as `counts/classes` beside the frames: they disclose the label histogram.
    """

    def weights(self, update: Update, weight: float, shape: torch.Size) -> Tensor:
        """The site's counts, no more than it has examples, nor than its weight where weights are
        bounded; a weight of 0 silences it."""
        counts = update.tensors[CLASS_COUNTS].to(torch.float64)
        most = float(update.counts.get("examples", torch.inf))
        if self.options.largest_weight is not None:
            most = min(most, weight)
        return counts.clamp(0.0, most).expand(shape) * (1.0 if weight > 0 else 0.0)


@RULES.register("stiefel")
class Stiefel(Rule):
    """The polar factor of the weighted mean of frames, each turned towards what was sent."""

    align = True

    def __init__(self, group: Group, options: Aggregate) -> None:
        super().__init__(group, options)
        select_frame_fields(group.fields, "stiefel")

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """The frames, turned inside their span, times the weight."""
        before = self.group.unpack(sent)
        parts = []
        for field in select_frame_fields(self.group.fields, "stiefel"):
            frames = update.tensors[field.name].to(torch.float64)
            if self.align:
                frames = align_frames(frames, before[field.name].to(torch.float64))
            parts.append(weight * frames.reshape(-1))
        return torch.cat(parts)

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The nearest frames to the mean."""
        del sent
        at, tensors = 0, {}
        for field in self.group.fields:
            size = int(torch.Size(field.shape).numel())
            mean = total[at : at + size].view(field.shape) / weight
            tensors[field.name] = polar_factor(mean).to(field.dtype)
            at += size
        return tensors, {}


@RULES.register("stiefel-plain")
class StiefelPlain(Stiefel):
    """The same without turning: columns of one number at all sites are taken to belong together."""

    align = False


class _PerSiteMean(PerSiteRule):
    """A mean of subspaces that must see every site's."""

    how: Literal["exact", "iterative", "karcher"]
    merges = False

    def __init__(self, group: Group, options: Aggregate) -> None:
        super().__init__(group, options)
        select_frame_fields(group.fields, self.how)

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The mean, and how far its search came."""
        tensors: Tensors = {}
        metrics: Metrics = {}
        before = self.group.unpack(sent)
        fields = select_frame_fields(self.group.fields, self.how)
        rows = [self.group.unpack(row) for row in stack]
        for field in fields:
            frames = torch.stack([row[field.name] for row in rows])
            consensus: Consensus = grassmann.mean(frames, weights, self.how, tolerance=1e-6)
            tensors[field.name] = canonicalize(consensus.frame, before[field.name]).to(field.dtype)
            agreement, agreement_metrics = compute_agreement(
                field.name,
                consensus.eigengap,
                consensus.consensus,
                tensors[field.name],
                list(frames),
            )
            tensors, metrics = tensors | agreement, metrics | agreement_metrics
            metrics["iterations_max"] = float(consensus.iterations.max())
            metrics["converged"] = float(consensus.converged.double().mean())
        return tensors, metrics


@RULES.register("grassmann-thin")
class GrassmannThin(_PerSiteMean):
    """The exact mean from the sites' frames side by side, n x (sites p) numbers a class, where
    projectors of n (n + 1) / 2 would be too many: patches with all channels of a backbone."""

    how = "exact"


@RULES.register("grassmann-iterative")
class GrassmannIterative(_PerSiteMean):
    """FedGraSP's Algorithm 1: gradient ascent from the first site, step 1."""

    how = "iterative"


@RULES.register("karcher")
class Karcher(_PerSiteMean):
    """The mean of least squared geodesic distances."""

    how = "karcher"
