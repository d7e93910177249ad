"""The examples of the docs run as they stand."""

import os
import subprocess
import sys

import pytest

EXAMPLES = (
    "tutorial_first_federation",
    "how_to_method",
    "reference_config",
    "explanation_same_bits",
    "prototypes",
    "private_run",
    "how_to_share",
)


@pytest.mark.very_slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, project, tmp_path):
    done = subprocess.run(
        [sys.executable, str(project / "examples" / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "VITRAIL_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_example_is_tested(project):
    demos = {"demo", "flower_demo"}  # `make demo` and `make demo-flower`: minutes each
    found = {path.stem for path in (project / "examples").glob("*.py")} - demos
    assert found == set(EXAMPLES)
