"""The two targets that run tests leave none out, and continuous integration calls both."""

import re


def read_recipes(project):
    text = (project / "Makefile").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w-]+):[^\n]*\n((?:\t[^\n]*\n)+)", text, re.MULTILINE))


def test_every_test_runs_in_one_of_two_targets(project):
    recipes = read_recipes(project)
    assert '-m "not very_slow"' in recipes["test"]
    assert recipes["test-slow"].rstrip().endswith("-m very_slow")
    for name in ("test", "test-slow"):  # nothing but the marker chooses
        assert not re.search(r"-k |--ignore|--deselect|tests/", recipes[name])


def test_continuous_integration_calls_both_and_the_checks(project):
    lines = (project / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert {"make test", "make test-slow", "make check"} <= set(lines)
    assert "set -euo pipefail" in lines
