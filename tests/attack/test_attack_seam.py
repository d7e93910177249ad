"""The seam of attacks: what every registered attack must do, and what each came to before.

`recorded_findings.json` was written before attacks had one seam; numbers may differ in the last
digits on another machine. A new attack needs no row here: it is asked the same questions.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

import vitrail
from vitrail.attack import ATTACKS, Attack, Budget, Findings, job
from vitrail.attack.choice import Choice
from vitrail.attack.findings import Matching, MembershipResult, Row
from vitrail.attack.run_attacks import run_attacks
from vitrail.attack.view import Needs, SceneView, View
from vitrail.errors import ConfigError, RunError
from vitrail.registry import load_plugins

RECORDED = Path(__file__).parent / "recorded_findings.json"
SMALL = {  # options of attacks that would take long, by their names
    "generator_steps": 3, "steps": 3, "draws": 1, "shadows": 2, "epochs": 1, "units": 2,
}  # fmt: skip
KEYS = ["run", "label_recovery", "rows", "patches", "members", "matchings"]


class StopError(Exception):
    """Somebody stopped the attack."""


@pytest.fixture
def ask(recorded, recorded_method, sharing, public, tmp_path):
    """A function: a named attack on a small run that has what it needs, but no `sites/`."""
    runs = {
        "model": sharing, "shared images": sharing, "parts": lambda: recorded_method("myth-gm"),
        "updates": recorded, "gradients": recorded,
    }  # fmt: skip

    def run(name, state="state", tell=lambda *progress: None):
        folder = tmp_path / "run"
        if not folder.exists():
            leave = shutil.ignore_patterns("sites", "attacks")
            shutil.copytree(runs[ATTACKS[name].needs]().path, folder, ignore=leave)
        fields = ATTACKS[name].Options.model_fields
        return run_attacks(
            vitrail.load(folder), [name], Choice(images=2), Budget(iterations=3),
            {name: {key: value for key, value in SMALL.items() if key in fields}},
            public=public if "public" in fields else None,
            tell=lambda _: tell, state=tmp_path / state,
        )  # fmt: skip

    return run


def without_seconds(findings):
    told = findings.to_json()
    for row in told["rows"]:
        assert row.pop("seconds") >= 0
    return told


# These look at a model that several rounds have trained, so that the last bits of a processor
# decide on single pixels of a mask and single pairs of an area under the curve.
FAR = {"denoise": 0.1, "membership": 0.02}


def close(value, near=1e-3):
    """The same with numbers that may differ a little."""
    if isinstance(value, dict):
        return {key: close(item, near) for key, item in value.items()}
    if isinstance(value, list):
        return [close(item, near) for item in value]
    number = isinstance(value, float) and not isinstance(value, bool)
    return pytest.approx(value, rel=near, abs=near) if number else value


DECLARED = {"canary"}  # works on what a run declared for it: see membership/test_canary.py


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - DECLARED))
def test_every_attack_runs_without_sites_tells_the_same_twice_and_goes_on(name, ask, monkeypatch):
    """Refuted if an attack reads `sites/`, if two sittings differ, or a stop changes the end."""
    monkeypatch.setattr(job, "_EVERY", -1.0)  # states are saved at every step
    first, calls = ask(name), []
    again = ask(name, "other", lambda *progress: calls.append(progress))
    told = without_seconds(first)
    assert list(told) == KEYS and json.loads(json.dumps(told, allow_nan=False)) == told
    assert any(told[key] for key in ("rows", "patches", "members", "matchings"))
    assert first.lines() and all(isinstance(line, str) for line in first.lines())
    assert {row.name for row in first.rows if not row.is_reference} <= {name}
    assert without_seconds(again) == told
    if not calls:
        return  # there is nothing to stop
    stop_at, fewer = (len(calls) + 1) // 2, []

    def stop(*progress):
        fewer.append(progress)
        if len(fewer) == stop_at:
            raise StopError

    with pytest.raises(StopError):
        ask(name, "stopped", stop)
    resumed, rest = [], ATTACKS[name].needs != "model"  # shadow models begin anew
    ended = ask(name, "stopped", lambda *progress: resumed.append(progress))
    assert without_seconds(ended) == told
    assert len(resumed) == len(calls) - (stop_at - 1 if rest else 0)
    for one, other in zip(ended.rows, first.rows, strict=True):
        assert torch.equal(one.images, other.images)


@pytest.mark.parametrize("name", sorted(json.loads(RECORDED.read_text())))
def test_every_attack_comes_to_what_it_came_to_before(name, ask):
    told = without_seconds(ask(name))
    for row in told["rows"]:  # what came later
        assert 0 <= row.pop("identification")["p_value"] <= 1
        assert row.pop("planned", 1000) > row["iterations"]
    assert told == close(json.loads(RECORDED.read_text())[name], FAR.get(name, 1e-3))


def test_findings_of_several_attacks_stand_in_one_order(recorded_method, tmp_path):
    """The order of the report, whatever order they were named in; references once."""
    run, options = recorded_method("myth-gm"), {"prototypes": {"units": 2}}
    choice, budget = Choice(images=2), Budget(iterations=2)
    both = run_attacks(run, ["ig", "prototypes"], choice, budget, options, state=tmp_path)
    alone = [
        run_attacks(run, [name], choice, budget, {k: v for k, v in options.items() if k == name},
                    state=tmp_path)
        for name in ("prototypes", "ig")
    ]  # fmt: skip
    assert both.patches == alone[0].patches and both.members == alone[0].members
    assert [row.scores for row in both.rows] == [row.scores for row in alone[1].rows]
    assert [row.name for row in both.rows[:3]] == ["random image", "mean image", "ig"]


def test_merged_findings_keep_every_part_and_no_reference_twice():
    gray, bird = torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)
    threat = object()
    one = Findings((Row("mean image", ()), Row("a", (), threat)), gray, 0.5)
    two = Findings((Row("mean image", ()), Row("b", (), threat)), bird)
    three = Findings(
        patches={"site": ()}, members=(MembershipResult("m", "t", 1, 1, 0.5, 0.0),),
        matchings=(Matching("l2", 1, 2, 0.5),),
    )  # fmt: skip
    merged = one.merge(two).merge(three)
    assert [row.name for row in merged.rows] == ["mean image", "a", "b"]
    assert merged.truth is bird and merged.label_recovery == 0.5
    assert merged.patches == {"site": ()} and len(merged.members) == len(merged.matchings) == 1
    assert Findings().merge(one).rows == one.rows


def test_a_view_refuses_what_it_does_not_have(scene):
    made, _, _ = scene(size=8, width=4)
    view = SceneView([made])
    assert view.scenes() == view.scenes(adaptive=True) == (made,)
    assert View.offers == frozenset() and "shared images" not in view.offers
    for ask_for in (view.shared_images, view.global_network, view.fresh_network):
        with pytest.raises(RunError, match="in this view of a server"):
            ask_for()
    with pytest.raises(RunError, match="nothing can be scored"):
        ATTACKS["ig"]("ig").run(view, job.Job())


def test_an_attack_needs_something_that_there_is():
    with pytest.raises(ConfigError, match=r"'update'.*updates"):
        type("Wrong", (Attack,), {"needs": "update"})
    assert {attack.needs for attack in ATTACKS.values()} <= set(Needs.__args__)


PLUGIN = """
from vitrail.attack import ATTACKS, Attack, Findings
from vitrail.attack.findings import Matching
from vitrail.config.schema import Count, Section


class CountingOptions(Section):
    times: Count = 1


@ATTACKS.register("counting")
class Counting(Attack):
    summary = "how many images were shared"
    needs = "shared images"
    Options = CountingOptions

    def run(self, view, job):
        shared = sum(len(own.targets) for own in view.shared_images().sets)
        job.tell(1, 1, "counted")
        return Findings(matchings=(Matching("count", shared * self.options.times, shared, 1.0),))
"""


def test_a_new_attack_of_any_kind_is_one_file(sharing, tmp_path, monkeypatch):
    monkeypatch.setattr(ATTACKS, "_items", dict(ATTACKS._items))
    (tmp_path / "counting.py").write_text(PLUGIN)
    load_plugins(("counting.py",), tmp_path)
    results = run_attacks(
        sharing(), ["membership", "counting", "match"],
        options={"counting": {"times": 2}, "membership": {"shadows": 0}},
    )  # fmt: skip
    counted, *matchings = results.matchings
    assert counted.images == 2 * counted.candidates > 0 and matchings and results.members
    assert any("direct matching, count" in line for line in results.lines())
    with pytest.raises(ConfigError, match="two commands"):
        run_attacks(sharing(), ["counting", "ig"])
