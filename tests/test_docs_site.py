"""The documentation as a site: it builds without a warning and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]+src=\"(?:https?:)?//|<link[^>]+href=\"https?://"
)


@pytest.mark.very_slow
def test_it_builds_strictly_searches_and_asks_nobody(project, tmp_path):
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(
        words,
        cwd=project,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=300,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr[-2000:]
    pages = sorted((tmp_path / "site").rglob("*.html"))
    sources = sorted((project / "docs").rglob("*.md"))
    assert len(pages) == len(sources) + 1  # and a page for what is not there
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not LOADED.search(text), page
    api = (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8")
    assert all(f'id="vitrail.{name}"' in api for name in ("run", "resume", "load", "compare"))
    assert 'id="vitrail.api.run.Run.explain"' in api
    assert (tmp_path / "site" / "search" / "search_index.json").stat().st_size > 100_000
