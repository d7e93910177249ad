"""What a run says it shares is what it shares: log, card and the line at the end."""

import json

import pytest
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.config.load import parse
from vitrail.engine.plan import make_plan
from vitrail.engine.release_summary import format_share, format_size, summarize_release

PROTOTYPES = {
    "model": {
        "backbone": "small-cnn",
        "width": 8,
        "prototypes": {"per_class": 2, "depth": 8},
    }
}


@pytest.fixture
def shared(tiny_config, tmp_path):
    """A function: what a configuration shares, without running it."""

    def of(method, options=None, **changes):
        config = tiny_config(method={"name": method, **(options or {})}, **changes)
        return summarize_release(make_plan(parse(config, tmp_path), ("a", "b", "c"), 3)[0])

    return of


def test_parts_and_bytes_of_every_stage(shared):
    found = shared("myth-pm", **PROTOTYPES)
    assert [(s.stage, s.first, s.rounds) for s in found.stages] == [
        ("warm", 1, 1),
        ("joint", 2, 1),
        ("push", 3, 1),
    ]
    for stage in found.stages:
        assert stage.parts == {"prototypes": 48, "head": 24}
        assert (stage.bytes_up, stage.bytes_down) == (288, 288)
    body = (3 * 9 * 8 + 8) + (8 * 9 * 16 + 16) + (16 * 9 * 16 + 16)  # three convolutions
    neck = (16 * 8 + 8) + (8 * 8 + 8)
    assert found.of == body + neck + 72
    assert found.bytes_up == 3 * 288 and found.bytes_down == 4 * 288  # the last model comes down
    assert found.text() == f"72 of {found.of:,} numbers (1.8 %) a round, 864 B a site in all"


def test_each_defense_says_how_much_it_may_change(shared):
    model = {"backbone": "small-cnn", "width": 8}
    found = shared("fedavg", model=model, release={"defenses": ["tip", "prune"]})
    kernels = 3 * 9 * 8 + 8 * 9 * 16 + 16 * 9 * 16
    assert found.touched["tip"] == {"backbone": kernels}
    assert sum(found.touched["prune"].values()) == found.of
    assert f"defense tip may change {kernels:,} numbers (backbone {kernels:,})" in found.lines()
    assert found.card()["touched"]["tip"] == {"backbone": kernels}
    assert shared("fedavg", model=model).touched == {}


def test_a_first_round_that_shares_less_is_not_hidden(shared):
    found = shared("myth-gm", **PROTOTYPES)
    assert found.text().startswith(f"{found.of:,} of {found.of:,} numbers (100 %) a round")
    options = {"share": ["neck", "prototypes", "head"], "first_share": ["prototypes"]}
    less = shared("myth-pm", options, **PROTOTYPES, run={"dropout": 0.1})
    assert [s.numbers for s in less.stages] == [48, 280, 280]
    assert less.text().startswith("at most 280 of")
    assert "at most 2.4 kB a site in all" in less.text()  # who drops out sends less
    assert less.lines()[0].startswith("stage warm, round 1: 48 of")
    assert less.lines()[2].startswith("stage push, round 3: 280 of")


@pytest.mark.parametrize(
    ("method", "text"),
    [("local", "none of"), ("centralized", "every image: all are in one place")],
)
def test_the_two_ends_of_the_scale(shared, method, text):
    assert shared(method).text().startswith(text)


def test_what_travels_beside_the_model_counts(shared):
    plain, control = shared("fedavg"), shared("scaffold")
    assert control.stages[0].parts["control"] > 0
    assert control.stages[0].numbers > control.of == plain.of  # more than the whole model
    assert plain.stages[0].numbers == plain.of and "(100 %)" in plain.text()
    beside = f"and up to {control.stages[0].parts['control']:,} beside the model"
    assert "(100 %)" in control.text() and beside in control.text() and "beside" not in plain.text()
    assert control.card()["stages"][0]["share"] == 1.0


def test_a_run_without_rounds_shares_nothing(shared):
    found = shared("fedavg", run={"rounds": 0})
    assert found.stages == () and found.bytes_up == 0 and found.text().startswith("none of")


def test_log_and_card_agree_with_what_was_counted(tiny):
    run = tiny(method={"name": "fedper"})
    told = run.card["shared"]
    rows = [r for r in run.rows() if r["site"] == "site-00" and r.get("bytes_up") is not None]
    assert told["bytes_up"] == sum(r["bytes_up"] for r in rows)
    assert (
        told["numbers"] > told["stages"][0]["numbers"] == sum(told["stages"][0]["parts"].values())
    )
    assert told["stages"][0]["share"] == told["stages"][0]["numbers"] / told["numbers"]
    assert set(told["stages"][0]["parts"]) == {"backbone"}  # the head stays home
    log = (run.path / "log.txt").read_text()
    assert f"shared: {told['text']}" in log and "stage train, rounds 1 to 3:" in log


def test_the_command_ends_with_what_was_shared(tiny_config, tmp_path):
    file = tmp_path / "config.toml"
    sections = tiny_config(run={"rounds": 1})
    file.write_text(
        "\n".join(
            f"[{name}]\n" + "\n".join(f"{k} = {_toml(v)}" for k, v in table.items())
            for name, table in sections.items()
        )
    )
    out = tmp_path / "run"
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(out)])
    assert done.exit_code == 0, done.output
    card = json.loads((out / "server" / "card.json").read_text())
    assert f"shared        {card['shared']['text']}" in done.output


def _toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (38_400, "38 kB"),
        (999_600, "1.0 MB"),
        (3_200_000_000_000, "3200 GB"),
    ],
)
def test_sizes(count, text):
    assert format_size(count) == text


def test_shares():
    assert format_share(2400, 93000) == "2.6 %" and format_share(3, 3) == "100 %"
    assert format_share(1, 10**6) == "0.0001 %" and format_share(0, 0) == "0 %"
