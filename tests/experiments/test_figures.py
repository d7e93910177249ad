"""Figures of the docs are drawn as their pages say."""

import sys

from experiments.figures import tip_theorem


def test_the_theorem_of_tip_is_measured_and_drawn(monkeypatch, tmp_path, capsys):
    picture = tmp_path / "theorem.png"
    monkeypatch.setattr(sys, "argv", ["tip_theorem", "--out", str(picture)])
    tip_theorem.main()
    printed = capsys.readouterr().out
    decaying, constant = printed.split("constant step")
    assert "above the printed bound from round 3547 on" in decaying
    assert "above the printed bound nowhere" in constant
    assert picture.read_bytes().startswith(b"\x89PNG")
