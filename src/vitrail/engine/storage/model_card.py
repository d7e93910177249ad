"""The card of a run: what is needed to use its models without its images."""

from __future__ import annotations

from vitrail.data.normalize import Normalize
from vitrail.engine.plan import Plan
from vitrail.engine.release_summary import summarize_release
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.train_ahead import describe_training
from vitrail.files import write_json


def write_card(
    folder: RunFolder,
    plan: Plan,
    sites: tuple[str, ...],
    image_size: int,
    public: bool,
    bits: int | None = None,
) -> None:
    """What is needed to use the models without the images: class names and preprocessing."""
    normalize = Normalize.of(plan.config, plan.channels)
    write_json(
        folder.server / "card.json",
        {
            "classes": list(plan.classes),
            "sites": list(sites),
            "channels": plan.channels,
            "image_size": image_size,
            "resize": plan.config.data.resize,
            "shift": list(normalize.shift),
            "scale": list(normalize.scale),
            "backbone": plan.config.model.backbone,
            "method": plan.config.method.name,
            "public": public,
            "shared": summarize_release(plan).card(),
            **({} if bits is None else {"bits": bits}),  # of images that are deeper than 8 bits
            **plan.card,
            **({"training": describe_training(plan)} if plan.config.model.frozen else {}),
        },
    )
