"""What the server learns from the sites' models on public images, against its formulas."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import vitrail
from vitrail.errors import ConfigError, DataError, RunError
from vitrail.methods.base.distillation import DistillOptions, distill, draw_public_batches
from vitrail.methods.feddf import FedDF
from vitrail.rng import Key

PUBLIC = {"source": "embedded", "aviary": {"images": 24, "classes": 3, "seed": 11}}
KEY = Key(b"a key of tests")


def sums_of(server, flats):
    """What a round of these models comes to."""
    views = {site: server.layout.views(flat) for site, flat in flats.items()}
    mean = torch.stack(list(flats.values())).mean(0)
    return SimpleNamespace(models=views, model=server.layout.views(mean)), mean


def test_feddf_is_its_formula_in_float64(server, moved, network_at):
    """KL(softmax(mean of logits) || model) from the mean on, written out with torch's own Adam."""
    flats = moved(server, 3)
    sums, mean = sums_of(server, flats)
    method = FedDF({"steps": 4, "server_batch": 4, "server_lr": 0.01})
    ctx = SimpleNamespace(key=KEY.at("round", 1))
    figures = method.close(server, sums, ctx)
    rows, batches = draw_public_batches(server.trainer.rows, method.options, ctx.key)
    pixels = server.trainer.inputs.images.astype(np.float64)
    x = torch.from_numpy((pixels - 127.5) / 127.5).permute(0, 3, 1, 2)
    teachers = [network_at(server, flat) for flat in flats.values()]
    student = network_at(server, mean)
    adam = torch.optim.Adam(student.parameters(), lr=0.01)
    losses = []
    for at in batches:
        batch = x[rows[at]]
        with torch.no_grad():
            logits = sum(teacher(batch) for teacher in teachers) / 3
        p, q = torch.softmax(logits, 1), torch.softmax(student(batch), 1)
        loss = sum(
            p[i, c] * torch.log(p[i, c] / q[i, c]) for i in range(len(at)) for c in range(3)
        ) / len(at)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()) * len(at))
    found, expected = server.layout.views(server.values), student.state_dict()
    for name in found:
        assert torch.allclose(found[name].double(), expected[name], atol=2e-5), name
    seen = sum(map(len, batches))
    assert figures["image_steps"] == seen
    assert figures["distilled"] == pytest.approx(sum(losses) / seen, abs=1e-6)


def test_one_teacher_has_nothing_to_teach_its_own_mean(server, moved):
    """With one site the mean IS its model: refuted if a step moved it beyond rounding."""
    sums, mean = sums_of(server, moved(server, 1))
    figures = FedDF({"steps": 1}).close(server, sums, SimpleNamespace(key=KEY))
    assert figures["distilled"] == pytest.approx(0.0, abs=1e-6)
    assert torch.allclose(server.values, mean, atol=2e-3)  # Adam's first step is lr whatever it is


def test_distillation_brings_the_model_to_its_teacher_and_leaves_statistics_alone(server):
    """Refuted if the KL did not fall, or if a number without a gradient moved."""
    rows = server.trainer.rows
    logits = 3 * torch.randn(10, 3, generator=KEY.torch())
    before = server.values.clone()
    options = DistillOptions(steps=40, server_batch=10, server_lr=0.01)
    rows, batches = draw_public_batches(rows, options, KEY)
    first = distill(server, rows, logits, batches[:1], options)["distilled"]
    last = [distill(server, rows, logits, batches, options)["distilled"] for _ in range(3)][-1]
    assert last < first / 2
    assert torch.equal(server.values[server.layout.trainable :], before[server.layout.trainable :])


@pytest.mark.parametrize(("public", "batch", "steps"), [(1, 32, 3), (5, 2, 7), (10, 10, 1)])
def test_public_images_come_in_cycles(public, batch, steps):
    rows = np.arange(100, 100 + public)
    options = DistillOptions(steps=steps, server_batch=batch)
    used, batches = draw_public_batches(rows, options, KEY)
    assert len(batches) == steps and set(used) <= set(rows)
    counts = np.bincount(torch.cat(batches).numpy(), minlength=len(used))
    assert counts.max() - counts.min() <= 1 and counts.min() >= 1
    again = draw_public_batches(rows, options, KEY)[1]
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))


def test_a_server_without_a_trainer_says_so(server):
    server.trainer = None
    with pytest.raises(RunError, match="server_data"):
        _ = server.required_trainer


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({}, ConfigError, r"data\.public: feddf trains on public images.*none are given"),
        ({"data": {"public": {"sorce": "npz"}}}, ConfigError, r"data\.public\.sorce.*source"),
        ({"data": {"public": {**PUBLIC, "image_size": 32}}}, DataError, "32 x 32 RGB.*16 x 16"),
        ({"data": {"public": {**PUBLIC, "channels": 1}}}, DataError, "gray.*channels = 3"),
        ({"data": {"public": {"source": "npz"}}}, DataError, r"data\.public\.path"),
        ({"data": {"public": {**PUBLIC, "site": "s"}}}, ConfigError, r"data\.public\.site"),
        ({"data": {"public": {"public": PUBLIC}}}, ConfigError, "means nothing"),
        (
            {"data": {"public": PUBLIC}, "aggregate": {"rule": "median"}},
            ConfigError,
            "every site's model",
        ),
        ({"data": {"public": PUBLIC}, "model": {"norm": "home"}}, ConfigError, "stays home"),
        (
            {
                "data": {"public": PUBLIC},
                "release": {"defenses": ["client-dp"], "client-dp": {"where": "sum"}},
            },
            ConfigError,
            "covers the sum only",
        ),
        (
            {"data": {"public": PUBLIC}, "release": {"secure_sum": True}},
            ConfigError,
            "which a sum hides",
        ),
        ({"method": {"steps": 0}}, ConfigError, r"method\.steps"),
    ],
    ids=lambda v: str(v)[:50],
)
def test_what_cannot_be_right_stops_before_it_starts(tiny, tmp_path, changes, error, told):
    method = {"name": "feddf", **changes.get("method", {})}
    with pytest.raises(error, match=told):
        tiny("refused", **{**changes, "method": method})
    assert not (tmp_path / "refused").exists()


def test_other_public_images_are_not_the_same_run(tiny, tmp_path):
    """A resume must see the public images it began with."""
    images = KEY.numpy().integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    file = tmp_path / "public.npz"
    np.savez(file, x=images, y=np.arange(12) % 2)

    def stop(progress):
        if progress.round == 1:
            raise KeyboardInterrupt

    data = {"public": {"source": "npz", "path": str(file)}}
    with pytest.raises(KeyboardInterrupt):
        tiny("run", stop, method={"name": "feddf", "steps": 1}, data=data)
    np.savez(file, x=images[::-1], y=np.arange(12) % 2)
    with pytest.raises(RunError, match="the public images of this run changed"):
        vitrail.resume(tmp_path / "run")
    np.savez(file, x=images, y=np.arange(12) % 2)
    assert vitrail.resume(tmp_path / "run").finished


def test_image_steps_count_the_server_too(tiny):
    run = tiny(method={"name": "feddf", "steps": 3, "server_batch": 4}, data={"public": PUBLIC})
    rows = run.rows()
    sites = sum(row["image_steps"] for row in rows if row["site"] != "*" and row.get("image_steps"))
    assert sites == sum(row["examples"] for row in rows if row.get("examples"))
    server = [row["image_steps"] for row in rows if row["site"] == "*" and row.get("image_steps")]
    assert server == [12.0] * 3
