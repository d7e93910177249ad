"""The runs that are recorded, as data: every method, defense and rule at least once, and what
else a federation can be asked for. Each takes a second or less on one core.

A new method, defense or rule needs a row here and `python tests/recording/record.py`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Literal

Sections = dict[str, Any]

BASE: Sections = {
    "data": {"source": "embedded", "image_size": 16, "aviary": {"images": 48, "classes": 3}},
    "partition": {"kind": "dirichlet", "alpha": 1.0, "sites": 3, "minimum": 8},
    "model": {"backbone": "small-cnn", "width": 4},
    "optimizer": {"lr": 0.05},
    "run": {"rounds": 2, "batch_size": 8, "device": "cpu", "seed": 5, "local_reference": False},
}


@dataclass(frozen=True)
class Case:
    """One run: what differs from `BASE`, and how its sites are reached.

    What a case is the `same` as must come to the same digests: it has none of its own.
    """

    sections: Sections = field(default_factory=dict)
    link: Literal["simulation", "flower"] = "simulation"
    same: str | None = None

    def config(self) -> Sections:
        """The whole configuration."""
        return merged(BASE, self.sections)


def merged(base: Sections, changes: Sections) -> Sections:
    """Sections with some keys changed, as a new dictionary; a list is changed as a whole."""
    found = copy.deepcopy(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if nested else copy.deepcopy(value)
    return found


PUBLIC = {"public": {"source": "embedded", "aviary": {"images": 24, "classes": 3, "seed": 11}}}
TRUSTED = {  # the classes that are drawn follow from the seed
    "aviary": {"images": 48, "classes": 3, "seed": 11},
    **PUBLIC,
}
BATCH_NORM = {"model": {"backbone": "resnet8", "width": 4}}
REFERENCE = {"local_reference": True}
PARTS = {"model": {"prototypes": {"per_class": 2, "depth": 8}}, "optimizer": {"lr": 0.002}}
FEW = {"warm_epochs": 1, "last_epochs": 1}
SPANS = {
    "model": {"subspaces": {"dimension": 2, "depth": 8, "hidden": 8, "top": 2}},
    "optimizer": {"lr": 0.002},
}
NO_HEAD = {"method": {"name": "fedgrasp", "personal_epochs": 0}}
GRASP = merged(SPANS, {"method": {"name": "fedgrasp", "personal_epochs": 1}})


def method(name: str, *others: Sections, **options: Any) -> Sections:
    """Sections of a method with these options."""
    found: Sections = {"method": {"name": name, **options}}
    for other in others:
        found = merged(found, other)
    return found


def run(**keys: Any) -> Sections:
    """The section `[run]`."""
    return {"run": keys}


METHOD_RUNS: dict[str, Sections] = {
    "centralized": method("centralized"),
    "ditto": method("ditto"),
    "fedadagrad": method("fedadagrad"),
    "fedadam": method("fedadam"),
    "fedaux": method("fedaux", {"data": PUBLIC}, run(rounds=3), warmup=1, negatives=8, steps=2),
    "fedavg": method("fedavg", run(rounds=3)),
    "fedavgm": method("fedavgm", run(rounds=3)),
    "fedbn": method("fedbn", BATCH_NORM),
    "feddf": method("feddf", {"data": PUBLIC}, steps=2),
    "feddisco": method("feddisco"),
    "feddyn": method("feddyn", run(rounds=3)),
    "fedfed": method("fedfed", run(rounds=3), distill_rounds=1),
    "fedftg": method("fedftg", steps=2, model_steps=2),
    "fedgen": method("fedgen", steps=2),
    "fedgrasp": method("fedgrasp", SPANS, run(**REFERENCE), personal_epochs=1),
    "fedlc": method("fedlc"),
    "fednova": method("fednova"),
    "fedper": method("fedper"),
    "fedproto": method("fedproto", run(rounds=3)),
    "fedprox": method("fedprox", mu=0.1),
    "fedrep": method("fedrep", head_epochs=1),
    "fedsam": method("fedsam"),
    "fedxds": method("fedxds", run(rounds=3), warmup=1),
    "fedyogi": method("fedyogi"),
    "ifedavg": method("ifedavg"),
    "indisco": method("indisco", PARTS, run(rounds=3), **FEW),
    "local": method("local"),
    "moon": method("moon", run(rounds=3)),
    "myth-gm": method("myth-gm", PARTS, run(**REFERENCE), prune=True, **FEW),
    "myth-pm": method("myth-pm", PARTS, run(rounds=3, **REFERENCE), **FEW),
    "scaffold": method("scaffold", run(rounds=3)),
    "spherefed": method("spherefed"),
    "tesnet": method("tesnet", PARTS, **FEW),
    "tesnet-personalized": method("tesnet-personalized", PARTS, **FEW),
    "tesnet-stiefel": method("tesnet-stiefel", PARTS, **FEW),
}

VARIANTS: dict[str, Sections] = {  # of methods: options that lead elsewhere
    "centralized of prototypes": method("centralized", PARTS, model="protopnet"),
    "centralized of subspaces": method("centralized", SPANS, model="fedgrasp"),
    "fedgrasp by class counts": merged(GRASP, method("fedgrasp", weights="class-counts")),
    "fedgrasp from patches": merged(GRASP, method("fedgrasp", run(rounds=3), start="patches")),
    "local of prototypes": method("local", PARTS, model="tesnet"),
    "myth-pm apart": method("myth-pm", PARTS, first_share=[], same_start=False, **FEW),
    "myth-pm matched and pruned": method(
        "myth-pm", PARTS, run(rounds=3), match=True, prune=True, same_start=False, **FEW
    ),
    "tesnet-personalized frozen": method("tesnet-personalized", PARTS, basis="frozen", **FEW),
}


def behind(name: str, *others: Sections, energy: float | None = None, **options: Any) -> Sections:
    """Sections of FedAvg behind a defense with these options."""
    release: Sections = {"defenses": [name], **({name: options} if options else {})}
    if energy is not None:
        release["energy"] = energy
    found: Sections = {"release": release}
    for other in others:
        found = merged(found, other)
    return found


BUDGET = {"epsilon": 4.0, "delta": 1e-3}
QUICK = {**BUDGET, "accountant": "rdp"}  # the other accountant takes seconds for steps
BY_SUBSPACE = merged(SPANS, NO_HEAD)
DEFENSE_RUNS: dict[str, Sections] = {
    "agp": behind("agp"),
    "all-channels": behind("all-channels"),
    "client-dp": behind("client-dp", **BUDGET),
    "dp-sgd": behind("dp-sgd", **BUDGET),
    "least-channels": behind("least-channels"),
    "none": behind("none"),
    "paper-dp": behind("paper-dp", schedule="decay"),
    "prune": behind("prune", share=0.3),
    "quantize": behind("quantize", bits=4),
    "random-channels": behind("random-channels"),
    "subspace-dp": behind("subspace-dp", BY_SUBSPACE, **BUDGET),
    "tip": behind("tip"),
    "white-noise": behind("white-noise", energy=0.25),
}

GUARDED: dict[str, Sections] = {  # defenses elsewhere than in their plainest place
    "agp of the loss": behind("agp", guidance="loss", select="most"),
    "client-dp in the sum": behind("client-dp", where="sum", **BUDGET),
    "client-dp over budget": behind("client-dp", run(rounds=3), turns=2, **BUDGET),
    "client-dp by rdp": behind("client-dp", **QUICK),
    "dp-sgd of subspaces": behind("dp-sgd", BY_SUBSPACE, **QUICK),
    "dp-sgd with a push": behind("dp-sgd", METHOD_RUNS["myth-pm"], **QUICK),
    "prune at random": behind("prune", share=0.3, select="random", feedback=False),
    "quantize to the nearest": behind("quantize", bits=6, rounding="nearest"),
    "subspace-dp of sites": behind("subspace-dp", BY_SUBSPACE, level="site", **BUDGET),
    "subspace-dp in the sum": behind(
        "subspace-dp", BY_SUBSPACE, level="site", where="sum", **BUDGET
    ),
    "tip then quantize": {"release": {"defenses": ["tip", "quantize"], "tip": {"share": 0.5}}},
}


def ruled(rule: str, **keys: Any) -> Sections:
    """Sections of FedAvg under another rule."""
    return {"aggregate": {"rule": rule, **keys}, "partition": {"sites": 4, "minimum": 5}}


RULE_RUNS: dict[str, Sections] = {
    "krum": merged(ruled("krum"), {"partition": {"sites": 5}}),
    "multi-krum": merged(ruled("multi-krum"), {"partition": {"sites": 5}}),
    "geometric-median": ruled("geometric-median", bucket=2, byzantine=0),
    "centered-clipping": ruled("centered-clipping"),
    "median": ruled("median"),
    "fltrust": merged(ruled("fltrust"), {"data": TRUSTED}),
    "norm-clip": ruled("norm-clip", clip=0.05),
    "trimmed-mean": merged(ruled("trimmed-mean", trim=0.2), {"partition": {"sites": 6}}),
    "uniform": {"aggregate": {"weights": "uniform"}},
    "grassmann-iterative": merged(GRASP, method("fedgrasp", consensus="iterative")),
    "karcher": merged(GRASP, method("fedgrasp", consensus="karcher")),
    "grassmann-median": merged(
        GRASP, method("fedgrasp", consensus="median", weights="class-counts")
    ),
    "grassmann-trimmed": merged(GRASP, method("fedgrasp", consensus="trimmed")),
    "grassmann-tangent": merged(GRASP, method("fedgrasp", consensus="tangent")),
    "grassmann-thin": merged(GRASP, method("fedgrasp", consensus="thin")),
    "stiefel-plain": method("tesnet-stiefel", PARTS, align=False, **FEW),
}
RULE_ELSEWHERE = {  # rules that a method brings along
    "mean": "method/fedavg",
    "uniform": "method/scaffold",
    "nova": "method/fednova",
    "centers": "method/fedproto",
    "matched": "variant/myth-pm matched and pruned",
    "grassmann": "method/fedgrasp",
    "grassmann-classes": "variant/fedgrasp by class counts",
    "stiefel": "method/tesnet-stiefel",
}

SECURE = {"release": {"secure_sum": True}}
SUMS: dict[str, Sections] = {
    "fedavg": merged(SECURE, method("fedavg")),
    "fedgrasp": merged(SECURE, GRASP),
    "scaffold": merged(SECURE, method("scaffold")),
    "with dropouts": merged(SECURE, {"partition": {"sites": 4}, **run(rounds=3, dropout=0.3)}),
    "client-dp in the sum": merged(SECURE, GUARDED["client-dp in the sum"]),
    "subspace-dp, distributed": merged(
        SECURE,
        behind(
            "subspace-dp",
            merged(BY_SUBSPACE, method("fedgrasp", consensus="tangent", personal_epochs=0)),
            level="site",
            where="distributed",
            clip=0.5,
            **BUDGET,
        ),
    ),
}


def shared(**options: Any) -> Sections:
    """FedXDS with these options."""
    return method("fedxds", run(rounds=3), warmup=1, **options)


SHARED: dict[str, Sections] = {
    "paper, soft masks, restart": shared(mask="soft", after="restart", fraction=0.5),
    "paper, class masks, boxes": shared(
        mask_from="class", boxes=[[0.0, 0.0, 0.25, 0.25]], heat_noise=0.1
    ),
    "local-dp": shared(protection="local-dp"),
    "local-dp of groups": shared(protection="local-dp", group=2, budgets={"site-00": 4.0}),
    "metric": shared(protection="metric"),
    "metric, l1, class masks": shared(
        protection="metric", norm="l1", mask_from="class", heat_epsilon=1.0
    ),
    "gradient": shared(attribution="gradient"),
    "gradient-x-input": shared(attribution="gradient-x-input"),
    "smoothgrad": shared(attribution="smoothgrad"),
    "integrated-gradients": shared(attribution="integrated-gradients"),
    "grad-cam": shared(attribution="grad-cam"),
}


LABEL = "streaked plumed double-barred fork-tailed finch"  # the first of three


def remedied(remedy: str, *others: Sections) -> Sections:
    """MyTH after an audit that found a class of the first site biased."""
    finding = {"site": "site-00", "label": LABEL, "score": 9.0, "prototypes": [1]}
    debias = {"remedies": [remedy], "findings": [finding], "epochs": 1}
    found: Sections = {"debias": debias, **method("myth-gm", PARTS, run(rounds=3), **FEW)}
    for other in others:
        found = merged(found, other)
    return found


REMEDIES: dict[str, Sections] = {
    name: remedied(name) for name in ("leave-out", "mask", "mix", "penalize", "weigh")
}

TIMES: dict[str, Sections] = {  # who takes part, what images are like, what is trained
    "absent sites": {
        "partition": {"sites": 5, "minimum": 4},
        **run(rounds=4, participation=0.6, dropout=0.3),
    },
    "absent sites with state": method(
        "scaffold", {"partition": {"sites": 5}}, run(rounds=4, participation=0.6, dropout=0.3)
    ),
    "a deadline": {"partition": {"sites": 5}, **run(rounds=3, deadline=1.2, slowness=1.0)},
    "adam": {"optimizer": {"name": "adam", "lr": 0.01, "weight_decay": 0.01}},
    "every second round": run(rounds=3, evaluate_every=2, checkpoint_every=2, local_epochs=2),
    "random views": {
        "data": {"augment": {"crop": 2, "flip": True, "rotate": 10, "shear": 5, "cutout": 4}}
    },
    "frozen stage": {"model": {"frozen": "stage1", "runtime": "torch"}},
    "frozen backbone with views": {
        "model": {"frozen": True, "runtime": "torch"},
        "data": {"views": ["identity", "flip"]},
    },
    "batch norm at home": merged(BATCH_NORM, {"model": {"norm": "home"}}),
    "group norm": merged(BATCH_NORM, {"model": {"norm": "group"}}),
    "batch norm averaged": BATCH_NORM,
    "lenet": {"model": {"backbone": "lenet", "width": 4}},
    "marks": {
        "bias": [
            {"kind": "emoji", "sites": [0], "classes": [0]},
            {"kind": "text", "sites": [0], "classes": [1], "position": "upper-right"},
            {"kind": "patch", "sites": [1], "classes": [0], "position": "random", "share": 0.5},
        ]
    },
    "washes": {
        "bias": [
            {"kind": "border", "sites": [0], "classes": [0]},
            {"kind": "blur", "sites": [0], "classes": [1]},
            {"kind": "brightness", "sites": [1], "classes": [0], "strength": 0.5},
            {"kind": "color", "sites": [1], "classes": [1], "where": ["train"]},
        ]
    },
    "iid in folds": {"partition": {"kind": "iid", "folds": 3, "fold": 1}},
    "quantity": {"partition": {"kind": "quantity", "test_fraction": 0.3}},
    "shards": {"partition": {"kind": "shards", "shards": 2, "per_class": 10}},
}

LINKED: dict[str, Sections] = {  # over the Flower link, in one process
    "fedavg": method("fedavg"),
    "scaffold": method("scaffold"),
    "secure sum": SECURE,
    "fedxds": shared(),
    "client-dp": behind("client-dp", **BUDGET),
}


def table() -> dict[str, Case]:
    """Every case by its name."""
    groups = {
        "method": METHOD_RUNS,
        "variant": VARIANTS,
        "defense": DEFENSE_RUNS,
        "guarded": GUARDED,
        "rule": RULE_RUNS,
        "sum": SUMS,
        "shared": SHARED,
        "remedy": REMEDIES,
        "run": TIMES,
    }
    found = {
        f"{group}/{name}": Case(sections)
        for group, members in groups.items()
        for name, sections in members.items()
    }
    found |= {f"link/{name}": Case(sections, "flower") for name, sections in LINKED.items()}
    for name in ("method/myth-pm", "defense/client-dp"):
        spread = merged(found[name].sections, run(workers=2))
        found[f"workers/{name}"] = Case(spread, same=name)
    return found


CASES = table()
LOOSE_GROUPS = ("defense", "guarded", "shared")
LOOSE = {
    "method/fedaux",
    "method/fedfed",
    "method/fedftg",
    "method/fedxds",
    "variant/myth-pm matched and pruned",
    "link/client-dp",
    "link/fedxds",
    "stopped-client-dp",
    "stopped-fedxds",
}


def is_loose(name: str) -> bool:
    """Whether one bit changes the whole result, so that elsewhere only its size can be compared.

    Noise is drawn for the digest of the message that is answered: other bits, other noise. Ranks
    of pixels and pairs of prototypes jump too.
    """
    return name in LOOSE or name.split("/")[0] in LOOSE_GROUPS


@dataclass(frozen=True)
class Stored:
    """A run folder that is kept as it was written: the whole run, or up to a round."""

    sections: Sections
    until: int | None = None

    def config(self) -> Sections:
        """The whole configuration."""
        return merged(merged(BASE, {"data": {"image_size": 8}}), self.sections)


LONG = run(rounds=5)
STORED = {
    "finished-fedavg": Stored(method("fedavg", run(rounds=3))),
    "stopped-scaffold": Stored(method("scaffold", LONG, run(participation=0.7)), until=3),
    "stopped-myth-pm": Stored(method("myth-pm", PARTS, LONG, **FEW), until=2),
    "stopped-client-dp": Stored(behind("client-dp", LONG, **BUDGET), until=3),
    "stopped-secure-sum": Stored(merged(SECURE, LONG), until=3),
    "stopped-fedxds": Stored(method("fedxds", LONG, warmup=1, fraction=0.2), until=3),
}
