"""The tables of MyTH and inDISCO, from the plan alone: names, shapes and bytes of what travels."""

import pytest

from vitrail.config.load import parse
from vitrail.engine.plan import make_plan

MODEL = {"backbone": "small-cnn", "width": 8, "prototypes": {"per_class": 2, "depth": 8}}
HEAD = {"model/head.vectors": (6, 8), "model/head.weight": (3, 6), "model/head.mask": (6,)}


@pytest.fixture
def planned(tiny_config, tmp_path):
    """A function: the plan of a prototype method, without running it."""

    def plan(name, **options):
        config = tiny_config(method={"name": name, **options}, model=MODEL)
        return make_plan(parse(config, tmp_path), ("a", "b", "c"), 3)[0]

    return plan


@pytest.mark.parametrize("name", ["myth-pm", "indisco"])
def test_pm_shares_prototypes_and_the_last_layer_only(planned, name):
    plan = planned(name)
    for stage in plan.stages:
        assert {f.name: f.shape for f in stage.schema.up} == HEAD
        assert {f.name: f.shape for f in stage.schema.down} == HEAD
        assert stage.schema.bytes_up == 4 * (6 * 8 + 3 * 6 + 6)
        assert all(n.startswith(("backbone.", "neck.")) for n in stage.home)
        assert len(stage.home) == 3 * 2 + 2 * 2


def test_gm_shares_everything_that_moves(planned):
    plan = planned("myth-gm")
    for stage in plan.stages:
        assert set(stage.travels) == {spec.name for spec in plan.layout.specs}
        assert stage.schema.bytes_up == 4 * plan.layout.size and not stage.home


@pytest.mark.parametrize(
    ("share", "travels"),
    [
        (["prototypes"], {"head.vectors"}),
        (["neck", "prototypes", "head"], {"neck.conv1.weight", "neck.conv1.bias"}),
        (["backbone.stage3", "prototypes", "head"], {"backbone.stage3.conv.weight"}),
        (["backbone", "neck", "prototypes", "head"], {"backbone.stage1.conv.bias"}),
        ([], set()),
    ],
)
def test_share_names_what_leaves(planned, share, travels):
    stages = planned("myth-pm", share=share).stages
    for stage in stages:
        assert travels <= set(stage.travels)
        for name in stage.travels:
            part = "prototypes" if name == "head.vectors" else name.split(".")[0]
            stage_of = ".".join(name.split(".")[:2])
            assert part in share or stage_of in share, name
        assert set(stage.travels).isdisjoint(stage.home)


def test_matching_is_a_rule_of_both_tensors(planned):
    for stage in planned("myth-pm", match=True).stages:
        assert {f.name: f.rule for f in stage.schema.up} == dict.fromkeys(HEAD, "matched")
