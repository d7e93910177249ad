"""Tables: sorted on the page, plain in a file."""

from vitrail.report.html_table import Column, Table


def test_a_table_sorts_by_value_and_writes_plain_numbers():
    columns = (Column("name"), Column("share", lambda v: f"{100 * v:.0f} %", number=True))
    table = Table("t", "caption", columns, (("a", 0.123456), ("=1+1", None)))
    assert 'data-sort="0.123456"' in table.to_html() and "12 %" in table.to_html()
    assert table.to_csv() == "name,share\na,0.123456\n'=1+1,\n"
