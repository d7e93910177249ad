"""Deep leakage from gradients: L-BFGS on the squared distance between gradients.

DLG finds image and label together (Zhu et al. 2019, arXiv:1906.08935); iDLG reads the label off
the gradient first (Zhao et al. 2020, arXiv:2001.02610). Both need smooth networks: with ReLU
the second derivative of the network is zero almost everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from vitrail.attack.attack import ATTACKS
from vitrail.attack.inversion.adaptive import compute_channel_weights
from vitrail.attack.inversion.gradient_matching import Mismatch
from vitrail.attack.inversion.inversion_attack import InversionAttack, Recovery
from vitrail.attack.inversion.inverting_gradients import draw_first_guess, require_labels
from vitrail.attack.inversion.label_inference import infer_labels
from vitrail.attack.inversion.lbfgs import Lbfgs, Loss
from vitrail.attack.inversion.search import select_best_rows
from vitrail.attack.job import Job
from vitrail.attack.scene import Scene
from vitrail.config.schema import Count, Positive, Section
from vitrail.models.heads.head import Head
from vitrail.models.network import Network


class DlgOptions(Section):
    """`[attack.dlg]` and `[attack.idlg]`."""

    iterations: Count = 1000
    """Steps of L-BFGS."""
    restarts: Count = 1
    """Guesses an update, searched side by side; the best by loss counts."""
    memory: Count = 50
    """Pairs that L-BFGS remembers."""
    start: Positive = 0.3
    """Spread of the first guess, in halves of the pixel range."""


class _LbfgsAttack(InversionAttack):
    """What both share: rows of L-BFGS problems over images and, for DLG, soft labels."""

    needs = "gradients"
    paper = "Zhu et al. 2019, arXiv:1906.08935"
    Options = DlgOptions
    soft = False

    def recover(self, scene: Scene, job: Job) -> Recovery:
        """All sites and restarts side by side, each with its own memory."""
        for turn in scene.turns:
            turn.recipe.need_gradient(self.name, scene.sites[0])
        options, restarts = self.options, self.options.restarts
        soft = self.soft and takes_soft_labels(scene.network)
        labels = None if soft else require_labels(scene, self.name)
        rows = [site for site in range(len(scene.sites)) for _ in range(restarts)]
        mismatch = Mismatch(scene, rows, "squared", self.weights(scene, job))
        scale = _compute_scale(scene, rows)
        size = scene.count * int(torch.Size(scene.shape).numel())

        def loss(flat: Tensor) -> Tensor:
            x = flat[:, :size].view(len(rows), scene.count, *scene.shape)
            if labels is not None:
                return mismatch(x, labels[rows]) / scale
            return mismatch(x, flat[:, size:].view(len(rows), scene.count, -1).softmax(2)) / scale

        solver, done = _minimize(loss, self._start(scene, rows, job, soft), options, job)
        best = select_best_rows(solver.loss, restarts)
        x = solver.x[best, :size].view(len(best), scene.count, *scene.shape)
        if labels is None:
            labels = solver.x[best, size:].view(len(best), scene.count, -1).argmax(2)
        return Recovery(
            images=scene.pixels(x),
            labels=labels,
            loss=solver.loss[best],
            threat=scene.threat,
            iterations=done,
            seconds=job.seconds,
        )

    def _start(self, scene: Scene, rows: Sequence[int], job: Job, soft: bool) -> Tensor:
        x = draw_first_guess(scene, rows, job, self.options.start).flatten(1)
        if not soft:
            return x
        guess = torch.randn(
            (len(rows), scene.count * scene.classes), generator=job.key.at("labels").torch()
        )
        return torch.cat([x, guess], 1)

    def weights(self, scene: Scene, job: Job) -> Sequence[Mapping[str, Tensor] | None] | None:
        """How much each channel of each turn is trusted; None: all the same."""
        return compute_channel_weights(scene, job.key.at("clean")) if self.adaptive else None


def takes_soft_labels(network: nn.Module) -> bool:
    """Whether the loss is plain cross-entropy, which takes probabilities in place of a label."""
    return not isinstance(network, Network) or type(network.head).loss is Head.loss


def _compute_scale(scene: Scene, rows: Sequence[int]) -> Tensor:
    """The squared length of each row's gradient, so that losses of all networks compare."""
    squares = [
        t[list(rows)].flatten(1).square().sum(1)
        for turn in scene.turns
        for t in turn.directions.values()
    ]
    return (torch.stack(squares).sum(0) / len(scene.turns)).clamp_min(1e-30)


def _minimize(loss: Loss, start: Tensor, options: DlgOptions, job: Job) -> tuple[Lbfgs, int]:
    solver = Lbfgs(start, options.memory)
    state, done = job.load()
    if state:
        solver.restore(state)
    for step in job.steps(options.iterations, done):
        solver.step(loss)
        done = step + 1
        job.tell(done, job.length(options.iterations), f"match {float(solver.loss.min()):.2e}")
        job.save(solver.state(), done)
        if bool(solver.resting.all()):
            break
    job.save(solver.state(), done, True)
    return solver, done


@ATTACKS.register("dlg")
class Dlg(_LbfgsAttack):
    """Image and label together."""

    summary = "squared gradient distance over image and soft label, L-BFGS; smooth networks"
    soft = True


@ATTACKS.register("idlg")
class Idlg(_LbfgsAttack):
    """The label is read off the last layer's gradient first, whatever the attacker was told."""

    summary = "dlg with the label read off the last layer's gradient first"
    paper = "Zhao et al. 2020, arXiv:2001.02610"

    def recover(self, scene: Scene, job: Job) -> Recovery:
        """Infer, then search."""
        labels = infer_labels(scene)
        return super().recover(
            scene if labels is None else scene.with_labels(labels, "inferred"), job
        )


@ATTACKS.register("dlg-adaptive")
class AdaptiveDlg(Dlg):
    """DLG without visibly noised channels, over all recorded rounds."""

    summary = "dlg without visibly noised channels, over all recorded rounds"
    adaptive = True
