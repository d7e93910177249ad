"""Every tensor of every model belongs to exactly one part and has exactly one kind."""

from dataclasses import replace

import pytest
from torch import nn

from vitrail import rng
from vitrail.config.schema import Model
from vitrail.errors import ConfigError
from vitrail.methods.base.stage import apply_user_choices, resolve_table
from vitrail.models.backbone import BACKBONES
from vitrail.models.network import make_network
from vitrail.models.parts import KINDS, PARTS, list_tensors

EVERYTHING = {"backbone": "mean", "neck": "mean", "prototypes": "mean", "head": "mean"}


def network(name, norm="average", frozen=False):
    model = Model(backbone=name, width=8, norm=norm, frozen=frozen)
    return make_network(model, "linear", 3, 3, rng.derive_server_key(1))[0]


@pytest.mark.parametrize("norm", ["average", "home", "group"])
@pytest.mark.parametrize("name", BACKBONES)
def test_every_tensor_has_one_part_one_kind_and_one_answer(name, norm):
    stages = [stage for stage, _ in network(name).backbone.stages()]
    for frozen in (False, True, stages[len(stages) // 2]):
        net = network(name, norm, frozen)
        specs = list_tensors(net)
        names = [spec.name for spec in specs]
        tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
        assert sorted(names) == sorted(set(names)) == sorted(tensors)
        assert {spec.part for spec in specs} <= set(PARTS)
        assert {spec.kind for spec in specs} <= set(KINDS)
        table = apply_user_choices(EVERYTHING, rule="mean", norm=norm)
        if norm == "home" and not any(s.kind == "norm" and not s.frozen for s in specs):
            with pytest.raises(ConfigError, match="this model trains none"):
                resolve_table(specs, table, "test")
            continue
        found = resolve_table(specs, table, "test")
        assert sorted(found) == sorted(names)
        for spec in specs:
            tensor, kind = tensors[spec.name], spec.kind
            assert spec.shape == tuple(tensor.shape) and spec.size == tensor.numel()
            assert spec.part == ("head" if spec.name.startswith("head.") else "backbone")
            assert spec.trainable == (kind in ("weight", "norm"))
            assert tensor.requires_grad == (spec.trainable and not spec.frozen)
            stays = spec.frozen or kind == "counter"
            at_home = norm == "home" and kind in ("norm", "statistic")
            assert found[spec.name] == ("frozen" if stays else "home" if at_home else "mean")
        assert any(spec.kind == "statistic" for spec in specs) == (
            any(isinstance(m, nn.BatchNorm2d) for m in net.modules())
        )
        assert norm != "group" or not any(isinstance(m, nn.BatchNorm2d) for m in net.modules())
        body = [spec.frozen for spec in specs if spec.part == "backbone"]
        assert not any(s.frozen for s in specs if s.part == "head")
        # A bool means all or nothing; a stage in the middle means some of each.
        if isinstance(frozen, bool):
            assert set(body) == {frozen}
        else:
            last = stages.index(frozen)
            for spec in specs:
                if spec.part == "backbone":
                    stage = net.backbone.stage_of(spec.name.removeprefix("backbone."))
                    assert spec.frozen == (stages.index(stage) <= last)
            assert set(body) == {True, False}


def test_an_unknown_stage_names_the_nearest():
    with pytest.raises(ConfigError, match="layer2") as err:
        network("resnet8", frozen="layer22")
    assert "model.frozen" in str(err.value)


def test_a_kind_wins_over_a_part():
    specs = list_tensors(network("resnet8"))
    found = resolve_table(specs, {**EVERYTHING, "norm": "home", "backbone": "median"}, "test")
    for spec in specs:
        expected = {"norm": "home", "counter": "frozen"}.get(spec.kind)
        assert found[spec.name] == (expected or ("median" if spec.part == "backbone" else "mean"))


def test_a_tensor_without_an_answer_stops_the_run():
    specs = list_tensors(network("resnet8"))
    with pytest.raises(ConfigError, match=r"no answer for tensor 'head\.") as err:
        resolve_table(specs, {"backbone": "mean"}, "mine")
    assert "mine" in str(err.value)
    # Frozen tensors need none.
    assert set(resolve_table([replace(s, frozen=True) for s in specs], {}, "mine").values()) == {
        "frozen"
    }


def test_an_unknown_row_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'bacbone'.*Did you mean 'backbone'"):
        resolve_table([], {"bacbone": "mean"}, "mine")


def test_the_users_rule_replaces_plain_means_only():
    table = {**EVERYTHING, "statistic": "uniform", "head": "home"}
    found = apply_user_choices(table, rule="krum", norm="average")
    assert found == {
        "backbone": "krum",
        "neck": "krum",
        "prototypes": "krum",
        "head": "home",
        "statistic": "uniform",
    }
