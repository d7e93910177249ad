"""What a coordinator may not make a site do before, or beyond, what its operator agreed to."""

from __future__ import annotations

import json
import time

import pytest
import torch

from vitrail.engine.plan import make_plan
from vitrail.engine.storage.run_folder import PRIVATE_METRICS_FILE, RunFolder
from vitrail.engine.tasks import Task
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.run_terms import make_terms, resolve_terms
from vitrail.flower.site.limits import SiteLimits
from vitrail.flower.site.message_checks import check_task
from vitrail.flower.site.network_size import check_network_size, count_numbers
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.site.site_errors import Refusal
from vitrail.flower.site.site_server import SiteServer
from vitrail.flower.versions import list_versions
from vitrail.models.network import HEADS, make_network
from vitrail.rng import derive_server_key

pytest.importorskip("flwr")


def test_a_network_that_no_machine_holds_is_refused_before_any_of_it_is_built(birds, tmp_path):
    """Nobody has agreed to anything yet when a site looks at terms."""
    terms = make_terms(resolve_terms(birds.coordinator()).config)
    terms["model"] = {**terms["model"], "width": 200_000}
    body = {"terms": terms, "versions": list_versions("torch"), "patience": 1.0}
    hello = seal("hello", "abc", "east", {**body, "signatures": {}, "weights": ""})
    began = time.monotonic()
    reply = unseal(SiteServer(birds.home("east", tmp_path), seeded=True).answer(hello))
    assert reply.kind == "error" and "too large for this site" in reply.body["sentence"]
    assert time.monotonic() - began < 20


def test_the_sites_own_limit_of_memory_decides(birds):
    loaded = resolve_terms(birds.coordinator())
    check_network_size(loaded, SiteLimits())
    with pytest.raises(Refusal, match="too large for this site"):
        check_network_size(loaded, SiteLimits(memory_gib=1e-6))


@pytest.mark.parametrize("head", sorted(HEADS))
@pytest.mark.parametrize("backbone", ["small-cnn", "resnet8", "densenet121"])
def test_numbers_are_those_of_the_network_that_would_be_built(backbone, head, birds):
    model = birds.coordinator(model={"backbone": backbone}).config.model
    key = derive_server_key(1).at("init")
    with torch.device("meta"):
        counted, _ = make_network(model, head, 3, 4, key)
    built, _ = make_network(model, head, 3, 4, key)
    shapes = {name: tensor.shape for name, tensor in built.state_dict().items()}
    assert {n: t.shape for n, t in counted.state_dict().items()} == shapes


def test_a_plan_has_as_many_numbers_as_were_counted(birds):
    loaded = resolve_terms(birds.coordinator())
    _, network = make_plan(loaded, tuple(loaded.config.data.classes), 3)
    assert count_numbers(loaded) == sum(t.numel() for t in network.state_dict().values())


@pytest.mark.parametrize(("base", "floor"), [(1, 2), (1, 10**9), (0, 1), (2, -1), (3, 0), (-1, -1)])
def test_a_site_forgets_no_state_that_it_could_still_build_on(birds, base, floor):
    """`floor` deletes what is older: beyond `base` it would delete everything the site learned."""
    loaded = resolve_terms(birds.coordinator(run={"rounds": 3, "seed": 5}))
    plan, _ = make_plan(loaded, tuple(loaded.config.data.classes), 3)
    policy = SitePolicy()
    check_task(Task("east", 3, 1, base=2, floor=2), plan, policy)
    with pytest.raises(Refusal, match="forget what it builds on"):
        check_task(Task("east", 3, 1, base=base, floor=floor), plan, policy)


def test_a_figure_that_one_turn_knows_is_not_hidden_by_another_that_does_not(tmp_path):
    folder = RunFolder(tmp_path)
    site = tmp_path / "sites" / "east"
    site.mkdir(parents=True)
    (site / PRIVATE_METRICS_FILE).write_text(
        json.dumps({"round": 1, "site": "east", "train_loss": 0.5}) + "\n"
    )
    (tmp_path / "metrics.jsonl").write_text(
        json.dumps({"round": 1, "site": "east", "train_loss": None, "accuracy": None}) + "\n"
    )
    assert folder.rows() == [{"round": 1, "site": "east", "train_loss": 0.5, "accuracy": None}]
