"""A section of one's own in the report."""

import pytest

from vitrail.report.compose import compose
from vitrail.report.plugin_sections import SECTIONS
from vitrail.report.viewer import Viewer

PLUGIN = '''
from vitrail.plugin import SECTIONS, Column, RunRecord, Table, el


@SECTIONS.register("sent-by-site")
def make_blocks(record: RunRecord):
    """How much each site <sent>.

    Not shown.
    """
    if record.run.config.run.rounds > 1:
        return ()
    rows = tuple((site, record.get_total(site, "bytes_up")) for site in record.run.sites)
    columns = (Column("site"), Column("bytes", number=True))
    return el("p", "a & b"), Table("sent", "Bytes by site", columns, rows)
'''


@pytest.fixture
def plugin(tmp_path):
    """The plug-in's file; its section is gone after the test."""
    file = tmp_path / "sent_section.py"
    file.write_text(PLUGIN)
    yield file
    SECTIONS._items.pop("sent-by-site", None)


def test_a_section_gets_the_record_and_stands_before_the_last(tiny, plugin):
    run = tiny(run={"rounds": 1, "plugins": [str(plugin)]})
    report = compose([run.path], Viewer())
    assert 'href="#own-sent-by-site">Sent by site</a>' in report.html
    assert "How much each site &lt;sent&gt;." in report.html and "Not shown" not in report.html
    assert "<p>a &amp; b</p>" in report.html
    assert report.html.index('id="own-sent-by-site"') < report.html.index('id="reproduce"')
    table = next(leaf for leaf in report.leaves if leaf.name == "sent")
    sent = {row["site"]: row["bytes_up"] for row in run.rows() if row["site"] in run.sites
            and row.get("bytes_up")}  # fmt: skip
    assert dict(table.rows) == sent and sent


def test_one_without_blocks_is_left_out_and_one_that_is_gone_stops_nothing(tiny, plugin):
    run = tiny(run={"rounds": 2, "plugins": [str(plugin)]})
    assert "own-sent-by-site" not in compose([run.path], Viewer()).html
    plugin.unlink()
    lines = []
    assert 'id="summary"' in compose([run.path], Viewer(), lines.append).html
    assert any("without the plug-ins of run" in line for line in lines)
