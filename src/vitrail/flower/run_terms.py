"""What a federation agrees on, and what each site says for itself.

The coordinator's file fixes classes, image size, channels and everything about the training.
Where a site's images lie, and what its labels are called there, only the site knows: nothing of
that is in a message, and a path in the coordinator's file never leaves the coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.config import Config, Loaded, parse, to_stored_tree
from vitrail.config.added_keys import write_new_defaults
from vitrail.config.schema import Data, Partition, Run, Section
from vitrail.engine.plan import Plan, make_plan
from vitrail.engine.resolve_config import resolve_config
from vitrail.errors import ConfigError
from vitrail.flower.terms_digest import Terms
from vitrail.models.network import Network

FIXED_DATA_KEYS = ("classes", "image_size", "channels", "resize", "normalize", "augment", "views")
"""Keys of `[data]` that hold for everybody; the others are each site's own."""
LARGEST_WEIGHT = 3.0
"""How many times the median site a site counts at most, where `[aggregate]` does not say."""
AGREED_DATA_KEYS = ("bits",)
"""Keys of `[data]` that hold for everybody where the coordinator's file gives them a value: how
deep files are is a fact of each site's scanner, so each site decides unless all have agreed."""
SITE_RUN_KEYS = ("workers", "device", "plugins", "record_updates", "checkpoint_every", "loggers")
"""Keys of `[run]` that are each machine's own business."""
PACKAGED_WEIGHTS = (None, "imagenet")
"""Weights that everybody can have: never a file, which the others do not see."""
_NEEDED = ("classes", "image_size", "channels")
_SECTIONS = ("model", "method", "optimizer", "aggregate", "release", "debias", "run")


def make_terms(config: Config) -> Terms:
    """What the coordinator's configuration says for everybody, as JSON."""
    for key in _NEEDED:
        if getattr(config.data, key) is None:
            raise ConfigError(
                "a federation of real sites must agree on it before it starts",
                where=f"data.{key}",
                hint="Add it to [data]; sites map their own labels with [data.rename].",
            )
    if config.bias:
        raise ConfigError("biases are injected in simulations only", where="bias")
    if config.hostile:
        raise ConfigError("hostile sites are played in simulations only", where="hostile")
    if config.release.options.get("dp-sgd", {}).get("canaries"):
        raise ConfigError(
            "canaries are for simulations: real sites toss coins that nobody else may know",
            where="release.dp-sgd.canaries",
            hint="Leave them out, and audit the same settings in a simulation.",
        )
    if config.release.options.get("client-dp", {}).get("canary_sites"):
        raise ConfigError(
            "canary sites are for simulations: a real site would send a direction that everybody "
            "knows, and nothing of its images",
            where="release.client-dp.canary_sites",
            hint="Leave them out, and audit the same settings in a simulation.",
        )
    if config.model.weights not in PACKAGED_WEIGHTS:
        raise ConfigError(
            "a weights file of the coordinator is not at the sites",
            where="model.weights",
            hint='Use weights = "imagenet", or none.',
        )
    if config.model.start is not None:
        raise ConfigError(
            "a model that the coordinator has is not at the sites",
            where="model.start",
            hint="Leave it out: a warm start is for simulations.",
        )
    tree = to_stored_tree(config)
    agreed = [key for key in AGREED_DATA_KEYS if tree["data"].get(key, "auto") != "auto"]
    fixed = (*FIXED_DATA_KEYS, *agreed)
    return {
        "data": {key: tree["data"][key] for key in fixed if key in tree["data"]},
        "partition": {"test_fraction": config.partition.test_fraction}
        if config.partition.test_fraction is not None
        else {},
        **{name: tree[name] for name in _SECTIONS if name != "run"},
        "run": {key: value for key, value in tree["run"].items() if key not in SITE_RUN_KEYS},
    }


def get_runtime(terms: Terms) -> str:
    """What some terms, as they came, compute frozen stages with."""
    model = terms.get("model")
    runtime = model.get("runtime") if isinstance(model, Mapping) else None
    return "onnx" if runtime == "onnx" else "torch"


def resolve_terms(loaded: Loaded) -> Loaded:
    """A configuration as a real federation runs it: every default filled in, and a bound on how
    much a site counts, because the number of its images is its own claim."""
    try:
        config = resolve_config(loaded)
        if config.aggregate.largest_weight is None:
            bounded = config.aggregate.model_copy(update={"largest_weight": LARGEST_WEIGHT})
            config = config.model_copy(update={"aggregate": bounded})
            config.mark_stored(())
        make_terms(config)
    except ConfigError as err:
        raise err.in_file(loaded.source) from None
    return replace(loaded, config=config)


def make_agreed_plan(loaded: Loaded) -> tuple[Plan, Network]:
    """The plan of a run before anybody has read an image: classes and channels are agreed on."""
    data = loaded.config.data
    return make_plan(loaded, tuple(data.classes or ()), int(data.channels or 3))


def has_local_reference(plan: Plan) -> bool:
    """Whether each site also trains a model alone, which stays there."""
    wanted = plan.config.run.local_reference
    return plan.method.reference if wanted is None else wanted


def is_audited(plan: Plan) -> bool:
    """Whether sites tell each other what an audit compares: exact figures by class, so never
    behind a formal mechanism."""
    return has_local_reference(plan) and not plan.private


def find_missing_classes(labels: npt.NDArray[np.int64], classes: Sequence[str]) -> list[str]:
    """The classes that no label names."""
    held = set(labels.tolist())
    return [name for i, name in enumerate(classes) if i not in held]


def merge_terms(
    terms: Terms,
    name: str,
    data: Mapping[str, Any],
    run: Mapping[str, Any],
    base: Path,
    source: str,
    begun: bool = False,
) -> Loaded:
    """The terms of a federation with a site's own data and machine: a configuration that runs.

    Terms are as a run folder has them: a key that they lack has its old value. What the site's own
    file leaves out has the default, unless the run has begun.
    """
    sections = {"data", "partition", *_SECTIONS}
    if set(terms) != sections:
        raise ConfigError(
            f"the coordinator's terms have the sections {', '.join(sorted(terms)) or 'none'}, "
            f"not {', '.join(sorted(sections))}"
        )
    agreed = [key for key in AGREED_DATA_KEYS if key in terms["data"]]
    fixed = (*FIXED_DATA_KEYS, *agreed)
    for key in fixed:
        if key in data and data[key] != terms["data"].get(key):
            raise ConfigError(
                "the federation fixes this key, and this site says otherwise",
                where=f"{source}: data.{key}",
                hint="Take it out of the site's file.",
            )
    forbidden = sorted((set(terms["data"]) - set(fixed)) | (set(terms["run"]) & set(SITE_RUN_KEYS)))
    if terms["model"].get("weights") not in PACKAGED_WEIGHTS or terms["model"].get("start"):
        forbidden.append("weights")  # a file, which would be one of the site's
    if forbidden:
        raise ConfigError(
            f"the coordinator's terms say {forbidden[0]!r}, which is for the site alone to say"
        )
    tree = {
        **{section: terms[section] for section in _SECTIONS if section != "run"},
        "data": {**data, **terms["data"], "partial": True},
        "partition": {**terms["partition"], "kind": "one", "name": name},
        "run": {**terms["run"], **run},
    }
    if not begun:
        data_keys = set(Data.model_fields) - set(fixed)
        tree["data"] |= _write_defaults(Data, tree["data"], data_keys)
        tree["run"] |= _write_defaults(Run, tree["run"], set(SITE_RUN_KEYS))
        others = set(Partition.model_fields) - {"test_fraction"}
        tree["partition"] |= _write_defaults(Partition, tree["partition"], others)
    return parse(tree, base, source, stored=True)


def _write_defaults(model: type[Section], table: Terms, names: set[str]) -> Terms:
    """The new defaults of those keys of a section that are for the site to say."""
    return {key: v for key, v in write_new_defaults(model, table).items() if key in names}
