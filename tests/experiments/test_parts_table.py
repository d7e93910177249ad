"""What released parts give away: the table of a tiny grid."""

from experiments.tables import parts_table
from experiments.tables.parts_table import make_parts_table as made

from vitrail.config.load import parse


def test_a_grid_ends_in_a_line_for_each_method(tmp_path, tiny_config, monkeypatch):
    monkeypatch.setattr(parts_table, "UNITS", 2)
    monkeypatch.setattr(parts_table, "ITERATIONS", 2)
    config = tiny_config(
        model={"backbone": "small-cnn", "width": 4, "prototypes": {"per_class": 2, "depth": 8}},
        run={"rounds": 1, "record_updates": True},
    )
    config["sweep"] = {"methods": ["myth-gm", "fedgrasp"], "seeds": [1]}
    text = made(parse(config), tmp_path, lambda *_: None)
    head, _, *lines = [[cell.strip() for cell in x.split("|")[1:-1]] for x in text.splitlines()]
    assert [line[0] for line in lines] == ["myth-gm", "fedgrasp"]
    assert head[2:5] == [f"{n} patch, PSNR dB (SSIM)" for n in ("random", "mean")] + [
        "patch search, PSNR dB (SSIM)"
    ]
    assert all(0 <= float(line[-2]) <= 1 and 0 <= float(line[-1]) <= 1 for line in lines)
    monkeypatch.setattr(parts_table, "run_attacks", None)  # what was measured is read back
    assert made(parse(config), tmp_path, lambda *_: None) == text
