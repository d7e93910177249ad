"""The seam between a method and the engine: few hooks, each asked when it can answer."""

import inspect

import pytest

import vitrail
from vitrail.config import parse
from vitrail.engine.plan import make_plan
from vitrail.errors import ConfigError
from vitrail.local.optimizer import OptimizerSettings
from vitrail.methods import METHODS, About, Method
from vitrail.models.flat import Region
from vitrail.release.message import Field

PUBLIC = {"public": {"aviary": {"images": 12, "classes": 3, "seed": 11}}}
HOOKS = (
    "check_run",
    "stages",
    "messages",
    "facts",
    "weights",
    "limits",
    "protection",
    "begin",
    "end",
    "open",
    "close",
)


def functions(cls):
    """The public functions that a class defines itself."""
    return {n for n, f in vars(cls).items() if inspect.isfunction(f) and not n.startswith("_")}


def test_a_method_has_at_most_twelve_hooks():
    assert functions(Method) == set(HOOKS) and len(HOOKS) <= 12


def test_every_attribute_of_a_method_says_what_it_is_for():
    lines = inspect.getsource(Method).splitlines()
    names = list(Method.__annotations__)
    assert len(names) <= 14
    for name in names:
        at = next(i for i, line in enumerate(lines) if line.startswith(f"    {name}: "))
        assert "#" in lines[at] or lines[at - 1].lstrip().startswith("#"), name


@pytest.mark.parametrize("name", METHODS)
def test_no_method_overrides_a_hook_that_nobody_calls(name):
    """Refuted by a hook under an old name, which would be a check that never runs."""
    old = {"check", "head", "down_fields", "up_fields", "class_fields", "beside"}
    old |= {"check_network", "check_sites", "check_bench"}
    for cls in METHODS[name].__mro__:
        assert not functions(cls) & old


@pytest.fixture
def setups(monkeypatch):
    """What FedDF was told of runs before they started, in order."""
    seen = []
    monkeypatch.setattr(METHODS["feddf"], "check_run", lambda _, setup: seen.append(setup))
    return seen


def test_a_method_is_told_all_there_is_to_know_before_a_run_starts(setups, tiny, tmp_path):
    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny("run", stop, method={"name": "feddf", "steps": 1}, data=PUBLIC)
    planned, started = setups[0], setups[-1]
    assert planned.examples is planned.image is planned.trainer is None
    assert isinstance(planned.optimizer, OptimizerSettings)
    assert sorted(started.examples) == [f"site-0{k}" for k in range(4)] and started.every_site
    assert started.image == (16, 16, 3) and len(started.trainer.rows) == 12
    assert started.network.head is not None
    setups.clear()
    assert vitrail.resume(tmp_path / "run").finished
    assert len(setups[-1].trainer.rows) == 12  # they may be others than at the start


def test_a_run_that_a_method_refuses_leaves_no_folder(monkeypatch, tiny, tmp_path):
    def refuse(self, setup):
        if setup.examples is not None:
            raise ConfigError(f"{len(setup.examples)} sites are not what it is for")

    monkeypatch.setattr(METHODS["fedavg"], "check_run", refuse)
    with pytest.raises(ConfigError, match="4 sites are not what it is for"):
        tiny("run")
    assert not (tmp_path / "run").exists()


def test_messages_are_declared_stage_by_stage_after_those_of_the_model(monkeypatch, tiny_config):
    asked = []

    def messages(self, stage, about):
        asked.append((stage, about))
        down, up = (Field(f"{stage}/{way}", (about.shared.size,)) for way in ("down", "up"))
        return (down,), (up,)

    monkeypatch.setattr(METHODS["fedxds"], "messages", messages)
    plan, network = make_plan(parse(tiny_config(method={"name": "fedxds"})), ("a", "b", "c"), 3)
    trainable = sum(p.numel() for p in network.parameters())
    assert [stage for stage, _ in asked] == ["warm-up", "share", "train"]
    sizes = {stage: about.shared.size for stage, about in asked}
    assert sizes == {"warm-up": trainable, "share": 0, "train": trainable}
    assert asked[0][1] == About(3, (16, 16, 3), network.channels, shared=plan.stages[0].shared)
    for stage in plan.stages:
        name = stage.stage.name
        for fields, last in ((stage.schema.down, "down"), (stage.schema.up, "up")):
            assert fields[-1] == Field(f"{name}/{last}", (sizes[name],))
            assert all(field.name.startswith("model/") for field in fields[:-1])


@pytest.mark.parametrize(
    ("name", "down", "up"),
    [
        ("fedavg", [], []),
        ("scaffold", ["control/server"], ["control/change"]),
        ("fedgrasp", [], []),
    ],
)
def test_what_methods_send_beside_the_model(name, down, up):
    about = About(3, (16, 16, 3), 8, shared=Region((slice(0, 5),)))
    found = METHODS[name]({}).messages("train", about)
    assert [[field.name for field in fields] for fields in found] == [down, up]
    assert all(field.shape == (5,) for fields in found for field in fields)


def test_an_option_called_model_is_the_model():
    assert METHODS["local"]({"model": "protopnet"}).model == "protopnet"
    assert METHODS["local"]({}).model == METHODS["fedavg"]({}).model == "linear"
    assert METHODS["myth-gm"]({}).model == "protopnet"
