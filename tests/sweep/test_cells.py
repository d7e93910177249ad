"""Grids: every cell once, what is finished is skipped, what changed is refused."""

import pytest

from vitrail.config import parse
from vitrail.engine.run import start
from vitrail.errors import ConfigError, RunError
from vitrail.report.write_comparison import write_comparison
from vitrail.runs.opened_run import Run
from vitrail.sweep.cells import copy_finished_runs, make_cells, run_sweep
from vitrail.sweep.compare_runs import (
    _flatten_config,
    check_comparison_config,
    compare_runs,
    read_comparison_config,
)

TREE = {
    "data": {"image_size": 16, "aviary": {"images": 40, "classes": 2}},
    "partition": {"sites": 2},
    "model": {"backbone": "small-cnn", "width": 4},
    "method": {"name": "fedprox", "mu": 0.5},
    "run": {"rounds": 2},
}


def grid(**sweep):
    return parse({**TREE, "sweep": sweep})


def test_cells_are_the_product_of_the_lists_with_overrides_where_they_belong():
    loaded = grid(
        methods=["fedprox", "fedavg"],
        seeds=[1, 2],
        alphas=[0.1, 1.0],
        **{"with": {"fedavg": {"run": {"local_epochs": 3}}}},
    )
    found = make_cells(loaded)
    assert len({cell.name for cell in found}) == 8
    for cell in found:
        config = cell.loaded.config
        prox = config.method.name == "fedprox"
        assert config.method.options == ({"mu": 0.5} if prox else {})
        assert config.run.local_epochs == (1 if prox else 3)


def test_one_method_may_stand_in_the_list_with_several_options():
    loaded = grid(
        methods=["fedavg", {"name": "fedprox", "mu": 0.1}, {"name": "fedprox", "mu": 0.2}],
        seeds=[1, 2],
        **{"with": {"fedprox": {"run": {"rounds": 5}}}},
    )
    found = make_cells(loaded)
    assert len({cell.name for cell in found}) == 6 and found[1].name == "fedprox-0.1_seed-1"
    told = [
        (c.method.name, c.method.options, c.run.rounds) for c in (f.loaded.config for f in found)
    ]
    assert told[:3] == [
        ("fedavg", {}, 2),
        ("fedprox", {"mu": 0.1}, 5),
        ("fedprox", {"mu": 0.2}, 5),
    ]
    assert told[3:] == told[:3], "what one cell changes must not reach another"


def test_a_whole_section_may_be_listed():
    few, many = ({"image_size": 16, "aviary": {"images": n, "classes": 2}} for n in (30, 50))
    found = make_cells(grid(data=[few, many], seeds=[1]))
    assert [cell.loaded.config.data.aviary.images for cell in found] == [30, 50]
    assert len({cell.name for cell in found}) == 2


@pytest.mark.parametrize(
    "sweep", [{"seeds": []}, {"seeds": 3}, {"rounds": [1]}, {"run.round": [1]}]
)
def test_a_list_that_is_none_is_refused(sweep):
    with pytest.raises(ConfigError):
        make_cells(grid(**sweep))


def test_a_grid_runs_once_resumes_and_ends_in_a_table(tmp_path):
    loaded = grid(methods=["fedavg", "fedprox"], seeds=[1, 2, 3])
    told = []

    def on_cell(number, count, name):
        told.append(name)

    paths = run_sweep(loaded, tmp_path / "grid", on_cell)
    assert len(told) == len(paths) == 6
    (paths[0] / "server" / "finished").unlink()
    run_sweep(loaded, tmp_path / "grid", on_cell)
    assert told[6:] == [paths[0].name], "only the unfinished cell is touched again"

    (table,) = compare_runs(paths)
    assert {row.name for row in table.rows} == {"fedavg", "fedprox"}
    assert all(row.n == 3 for row in table.rows) and table.rows[0].name == "fedavg"
    trained = sum(row["image_steps"] for row in Run(paths[0]).rows() if row.get("image_steps"))
    (cost,) = [note for note in table.notes if note.startswith("fedavg: ")]
    assert f"{trained:,.0f} image-steps in 2 rounds" in cost and " up, " in cost
    (up,), (down,) = (compare_runs(paths, alternative=way) for way in ("greater", "less"))
    if table.rows[1].p not in (None, 1.0):  # else the rows are the same in every seed
        assert up.rows[1].p + down.rows[1].p == pytest.approx(1)
        assert min(up.rows[1].p, down.rows[1].p) == pytest.approx(table.rows[1].p / 2)
    assert any("greater" in note for note in up.notes)
    written = write_comparison([table], tmp_path / "out")
    assert {path.suffix for path in written} == {".md", ".csv", ".png"}

    changed = grid(methods=["fedavg"], seeds=[1, 2, 3], **{"run.local_epochs": [2]})
    (tmp_path / "grid" / make_cells(changed)[0].name).mkdir(exist_ok=True)
    other = parse({**TREE, "run": {"rounds": 3}, "sweep": {"methods": ["fedavg"], "seeds": [1]}})
    with pytest.raises(RunError, match="another configuration"):
        run_sweep(other, tmp_path / "grid", on_cell)


def test_settings_get_tables_of_their_own(tmp_path):
    paths = run_sweep(
        grid(methods=["fedavg", "fedprox"], seeds=[1, 2], alphas=[0.5, 5.0]),
        tmp_path,
        lambda *_: None,
    )
    # alpha is not used by an IID partition, but it is a setting that varies within a method
    tables = compare_runs(paths)
    assert sorted(t.setting for t in tables) == ["partition.alpha = 0.5", "partition.alpha = 5.0"]
    with pytest.raises(RunError, match="nothing to compare"):
        compare_runs(paths[:1])


def test_cells_that_make_no_sense_are_left_out_by_name():
    every = grid(methods=["fedavg", "fedprox"], alphas=[0.5, 5.0], seeds=[1, 2])
    some = grid(methods=["fedavg", "fedprox"], alphas=[0.5, 5.0], seeds=[1, 2],
                without=["fedprox_alpha-5.0"])  # fmt: skip
    names = [cell.name for cell in make_cells(every)]
    kept = [name for name in names if not name.startswith("fedprox_alpha-5.0")]
    assert len(names) == 8 and [cell.name for cell in make_cells(some)] == kept and len(kept) == 6
    with pytest.raises(ConfigError, match=r"sweep\.without.*no cell 'fedpro_alpha-5.0'"):
        make_cells(grid(methods=["fedavg", "fedprox"], alphas=[5.0], without=["fedpro_alpha-5.0"]))
    with pytest.raises(ConfigError, match="list of names"):
        make_cells(grid(seeds=[1], without="fedavg"))


def names(**sweep):
    return [cell.name for cell in make_cells(grid(**sweep))]


def test_options_that_tell_cells_apart_are_in_their_names():
    tip = [{"defenses": ["tip"], "tip": {"share": share}} for share in (0.1, 0.3)]
    agp = {"defenses": ["agp"]}
    assert names(release=[*tip, agp], seeds=[1]) == [
        "tip_share-0.1_seed-1", "tip_share-0.3_seed-1", "agp_seed-1",
    ]  # fmt: skip
    assert names(release=[{}, {"secure_sum": True}], seeds=[1, 2]) == [
        "none_seed-1", "none_secure_sum-True_seed-1",
        "none_seed-2", "none_secure_sum-True_seed-2",
    ]  # fmt: skip
    xds = [{"name": "fedxds", "removed": 0.6}, {"name": "fedxds", "fraction": 0.6}, "fedavg"]
    assert names(methods=xds, seeds=[1]) == [
        "fedxds-0.6_removed-0.6_seed-1", "fedxds-0.6_fraction-0.6_seed-1", "fedavg_seed-1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "sweep",
    [
        {"seeds": [1, 1]},
        {"methods": ["fedavg", "fedavg"]},
        {"release": [{"defenses": ["tip"]}, {"defenses": ["tip"]}]},
    ],
)
def test_two_cells_never_share_a_folder(sweep):
    with pytest.raises(ConfigError, match=r"sweep: two cells are called '.*would share a folder"):
        make_cells(grid(**sweep))


def test_options_of_a_defense_make_rows_and_an_unknown_baseline_is_refused(tmp_path):
    tip = [{"defenses": ["prune"], "prune": {"share": share}} for share in (0.1, 0.3)]
    loaded = grid(methods=["fedavg"], release=[*tip, {}], seeds=[1])
    paths = run_sweep(loaded, tmp_path, lambda *_: None)
    (table,) = compare_runs(paths, baseline="fedavg none")
    assert [row.name for row in table.rows] == [
        "fedavg none", "fedavg prune share=0.1", "fedavg prune share=0.3",
    ]  # fmt: skip
    with pytest.raises(RunError, match=r"--baseline: .*'fedavg nome'.*Did you mean 'fedavg none'"):
        compare_runs(paths, baseline="fedavg nome")


def test_another_grids_runs_are_taken_over_where_they_are_the_same(tmp_path):
    first = run_sweep(grid(methods=["fedavg"], seeds=[1]), tmp_path / "first", lambda *_: None)
    default = grid(seeds=[1]).config.partition.alpha
    second = grid(methods=["fedavg", "fedprox"], alphas=[default, 7.0], seeds=[1])
    copy_finished_runs(second, tmp_path / "second", [tmp_path / "first"])
    (copied,) = (tmp_path / "second").iterdir()
    assert copied.name == f"fedavg_alpha-{default}_seed-1"
    assert (copied / "metrics.jsonl").read_bytes() == (first[0] / "metrics.jsonl").read_bytes()
    told = []
    paths = run_sweep(second, tmp_path / "second", lambda number, count, name: told.append(name))
    assert copied in paths and copied.name not in told and len(told) == 3
    with pytest.raises(RunError, match=r"--reuse .*no finished run"):
        copy_finished_runs(second, tmp_path / "third", [tmp_path / "nowhere"])


def test_a_figure_may_be_the_mean_of_the_last_evaluations(tmp_path):
    tree = {**TREE, "run": {"rounds": 3, "evaluate_every": 1}, "sweep": {"seeds": [1, 2]}}
    paths = run_sweep(parse(tree), tmp_path, lambda *_: None)
    curves = [[value for at, value in Run(path).curve() if at] for path in paths]
    assert all(len(curve) == 3 for curve in curves)
    for last in (1, 2, 3, 9):  # a run has no more than it has, and untrained it does not count
        (table,) = compare_runs(paths, last=last)
        wanted = sum(sum(curve[-last:]) / len(curve[-last:]) for curve in curves) / 2
        assert table.rows[0].mean == pytest.approx(wanted)
    assert any("mean of its last 9 evaluations" in note for note in table.notes)
    assert sum("has 3 evaluations" in note for note in table.notes) == 2
    (early,) = compare_runs(paths, last=1, until=1)
    first = [dict(Run(path).curve())[1] for path in paths]
    assert early.rows[0].mean == pytest.approx(sum(first) / 2)
    (seeds,) = early.histories.values()
    assert max(at for history in seeds.values() for at, _ in history) == 1
    with pytest.raises(RunError, match="--last"):
        compare_runs(paths, last=0)
    with pytest.raises(RunError, match=r"--figure: no run has a figure 'acuracy'.*'accuracy'"):
        compare_runs(paths, figure="acuracy")


def test_a_baseline_that_no_row_will_have_is_refused_before_anything_is_played(tmp_path, command):
    xds = [{"name": "fedxds", "warmup": 0}, {"name": "fedxds", "warmup": 0, "removed": 0.6}]
    grid_of = grid(methods=["fedavg", *xds], seeds=[1], compare={"baseline": "fedxds"})
    with pytest.raises(RunError, match=r"sweep\.compare\.baseline: .*removed=0\.6, fedxds removed"):
        check_comparison_config(read_comparison_config(grid_of), make_cells(grid_of), "grid.toml")
    good = grid(methods=["fedavg", *xds], seeds=[1], compare={"baseline": "fedxds removed=0.6"})
    check_comparison_config(read_comparison_config(good), make_cells(good), "grid.toml")


def test_how_a_grid_is_compared_is_checked_before_it_runs():
    assert read_comparison_config(grid(seeds=[1])).last == 1
    asked = {"last": 5, "alternative": "less", "baseline": "fedprox"}
    found = read_comparison_config(grid(seeds=[1], compare=asked))
    assert (found.last, found.alternative, found.baseline) == (5, "less", "fedprox")
    assert len(make_cells(grid(seeds=[1], compare=asked))) == 1
    for wrong in ({"lost": 5}, {"last": 0}, {"last": 2.5}, {"alternative": "more"}):
        with pytest.raises(ConfigError, match=r"sweep\.compare"):
            read_comparison_config(grid(seeds=[1], compare=wrong))


def test_before_and_after_a_remedy_stand_in_one_table(tmp_path):
    """A row is called by its remedy and what that is against."""
    finding = {"site": "site-00", "label": "class", "score": 9.0, "prototypes": []}
    tree = {**TREE, "method": {"name": "fedavg"}}
    label = start_run(tree, tmp_path / "before").classes[0]
    debias = {"remedies": ["weigh"], "findings": [{**finding, "label": label}]}
    start_run({**tree, "debias": debias}, tmp_path / "weighed")
    start_run(
        {**tree, "debias": {**debias, "findings": [{**debias["findings"][0], "score": 1.0}]}},
        tmp_path / "weighed-less",
    )
    paths = [tmp_path / name for name in ("before", "weighed", "weighed-less")]
    (table,) = compare_runs(paths)
    after = f"fedavg debiased by weigh (site-00/{label})"
    assert [row.name for row in table.rows] == ["fedavg", after, f"{after} #2"]
    assert table.setting == "" and "{" not in table.setting


def test_rounds_that_a_remedy_added_are_no_other_setting():
    finding = {"site": "site-00", "label": "class", "score": 9.0, "prototypes": [1]}
    debias = {"remedies": ["mask"], "findings": [finding], "rounds": 3}
    after = parse({**TREE, "debias": debias, "run": {"rounds": 5}}).config
    assert _flatten_config(after) == _flatten_config(parse(TREE).config)


def start_run(tree, path):
    start(parse(tree), path)
    return Run(path)
