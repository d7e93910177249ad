"""`vitrail ledger`: sums that hold, and what happens when somebody touched them."""

import json

import pytest
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.errors import ConfigError, RunError

GROUP = {"norm": "group"}


def shown(*args):
    return CliRunner().invoke(app, ["ledger", *map(str, args)], catch_exceptions=False)


@pytest.fixture
def private(tiny):
    options = {"epsilon": 4.0, "delta": 1e-3}
    return tiny(
        model=GROUP,
        run={"local_reference": False},
        release={"defenses": ["client-dp"], "client-dp": options},
    )


def test_formal_and_empirical_are_told_apart(private, tiny, tmp_path):
    found = shown(private.path, "--json", tmp_path / "ledger.json")
    assert found.exit_code == 0 and "a whole site" in found.output
    assert "client-dp: against the server" in found.output and "run.seed" in found.output
    written = json.loads((tmp_path / "ledger.json").read_text())
    assert written["mismatches"] == [] and written["totals"]["empirical"]["releases"] == 0
    assert written["totals"]["formal"]["releases"] == 12
    sent = sum(row["bytes_up"] for row in private.rows() if row["site"] == "*" and row["round"])
    assert written["totals"]["formal"]["bytes"] == sent > 0
    plain = tiny("plain", run={"local_reference": False})
    assert shown(plain.path, "--json", tmp_path / "plain.json").exit_code == 0
    totals = json.loads((tmp_path / "plain.json").read_text())["totals"]
    assert totals["formal"] == {"releases": 0, "bytes": 0}
    assert totals["empirical"]["bytes"] == sum(
        row["bytes_up"] for row in plain.rows() if row["site"] == "*" and row["round"]
    )


def test_one_site_is_shown_round_by_round(private):
    found = shown(private.path, "--site", "site-02")
    assert found.exit_code == 0 and "site-01" not in found.output
    assert found.output.count("formal: (epsilon, delta)") == 3


def lines(run, site):
    file = run.path / "sites" / site / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def edited(run, site, change):
    file = run.path / "sites" / site / "ledger.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(x) + "\n" for x in change(lines)))


def forgotten(lines):
    last = max(at for at, x in enumerate(lines) if x.get("bytes"))
    return lines[:last] + lines[last + 1 :]


def doubled(lines):
    last = max(at for at, x in enumerate(lines) if x.get("bytes"))
    return [*lines[: last + 1], *lines[last:]]


def cheaper(lines):
    for line in lines:
        for spend in line.get("spends", ()):
            spend["epsilon"] *= 0.9
    return lines


def quieter(lines):
    for line in lines:
        for spend in line.get("spends", ()):
            spend["events"] = [[noise / 2, rate, times] for noise, rate, times in spend["events"]]
    return lines


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (forgotten, "bytes arrived"),
        (doubled, "twice"),
        (cheaper, "the ledger says"),
        (quieter, "epsilon"),
    ],
)
def test_a_ledger_that_does_not_hold_is_an_error(change, says, private):
    edited(private, "site-02", change)
    with pytest.raises(RunError, match="does not hold") as err:
        shown(private.path)
    assert says in str(err.value)


def test_bad_input(private, tmp_path):
    with pytest.raises(RunError, match="no site 'nowhere'"):
        shown(private.path, "--site", "nowhere")
    with pytest.raises(RunError, match="not a run folder"):
        shown(tmp_path / "void")
    (tmp_path / "there.json").write_text("{}")
    with pytest.raises(RunError, match="exists"):
        shown(private.path, "--json", tmp_path / "there.json")


def test_shared_images_are_counted_once_and_mechanisms_are_whole_words(tiny, tmp_path):
    method = {"name": "fedxds", "warmup": 1, "attribution": "gradient", "protection": "local-dp"}
    run = tiny(method=method, run={"local_reference": False})
    found = shown(run.path, "--site", "site-02", "--json", tmp_path / "one.json")
    assert found.exit_code == 0
    (told,) = [line for line in found.output.splitlines() if "local-dp" in line]
    assert "images" in told and "formal: local DP" in told
    assert shown(run.path, "--json", tmp_path / "all.json").exit_code == 0
    totals = json.loads((tmp_path / "all.json").read_text())["totals"]
    arrived = sum(row["bytes_up"] for row in run.rows() if row["site"] == "*" and row["round"])
    assert sum(each["bytes"] for each in totals.values()) == arrived
    releases = [line for line in lines(run, "site-02") if line["kind"] in ("release", "enroll")]
    one = json.loads((tmp_path / "one.json").read_text())["sites"][0]
    assert one["formal"]["releases"] + one["empirical"]["releases"] == len(releases)

    def older(said):  # which wrote a name for a list
        return [{**x, "mechanism": x["mechanism"][0]} if x["kind"] == "images" else x for x in said]

    edited(run, "site-02", older)
    assert shown(run.path, "--site", "site-02").output == found.output.replace(
        f"written: {tmp_path / 'one.json'}\n", ""
    )


def test_verify_says_what_was_checked_and_names_the_first_line_that_does_not_fit(tiny):
    run = tiny(run={"local_reference": False})
    held = shown(run.path, "--verify")
    assert held.exit_code == 0 and held.output.count("lines, all chained") == len(run.sites)
    file = run.path / "sites" / run.sites[1] / "ledger.jsonl"
    rows = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*rows[:2], *rows[3:]]))
    with pytest.raises(RunError, match=f"the ledger of {run.sites[1]} does not hold: line 3 "):
        shown(run.path, "--verify")
    file.write_bytes(b"".join(row.split(b',"chain"')[0] + b"}\n" for row in rows))
    old = shown(run.path, "--verify")  # as an older version wrote it
    assert old.exit_code == 0 and f"{len(rows)} lines, not chained" in old.output
    for words in (["--verify", "--site", run.sites[0]], ["--heads", file]):
        with pytest.raises(ConfigError):
            shown(run.path, *words)
