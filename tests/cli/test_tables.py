"""A grid that names a table of its own ends in it; one that names a wrong one never starts."""

import tomli_w


def test_a_sweep_ends_in_the_table_it_names(command, tiny_config, tmp_path):
    tree = tiny_config(
        method={"name": "myth-pm", "warm_epochs": 1, "last_epochs": 1},
        model={"prototypes": {"per_class": 2, "depth": 8}},
        run={"rounds": 1, "local_epochs": 1, "local_reference": False},
    )
    sweep = {"table": "share", "seeds": [1], "method": {"share": [["head"], ["prototypes"]]}}
    (tmp_path / "grid.toml").write_text(tomli_w.dumps({**tree, "sweep": sweep}))
    code, out, _ = command("sweep", "grid.toml", "--out", "grid", "--quiet")
    table = (tmp_path / "grid" / "figures" / "table.md").read_text()
    assert code == 0 and table.strip() == out.strip() and "| 4 | head |" in out
    sweep["table"] = "shares"
    (tmp_path / "grid.toml").write_text(tomli_w.dumps({**tree, "sweep": sweep}))
    code, _, err = command("sweep", "grid.toml", "--out", "other", "--quiet")
    assert code == 2 and "sweep.table" in err and "'share'" in err
    assert not (tmp_path / "other").exists()
