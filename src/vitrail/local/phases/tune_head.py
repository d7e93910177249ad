"""A head of the site's own on a model that everybody shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vitrail.local.evaluate import evaluate
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases.phase import Fit
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.flat import FlatModel


@contextmanager
def unfreeze_head(model: FlatModel) -> Iterator[None]:
    """Let the head train inside the block, also where the stage keeps it frozen."""
    before = model.still
    head = {spec.name for spec in model.layout.specs if spec.part == "head"}
    model.still = before - head
    try:
        yield
    finally:
        model.still = before


@dataclass(frozen=True)
class Personalize:
    """Tune only the head on the site's own images; nothing of it is released.

    The figures of the model as it was received are kept as `global_accuracy`.
    """

    epochs: int = 10
    lr: float = 1e-3
    name: str = "personalize"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Adam on the head for some epochs."""
        metrics: Metrics = {}
        network, rows = site.model.network, site.rows.test
        before = evaluate(network, site.inputs, rows, ctx.classes)["accuracy"]
        if before is not None:
            metrics["global_accuracy"] = before
        head_ctx = replace(ctx, optimizer=OptimizerSettings("adam", self.lr))
        with unfreeze_head(site.model):
            Fit(self.name, ("head",), self.epochs)(site, head_ctx)
        return metrics
