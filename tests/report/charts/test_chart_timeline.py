"""What left which site when, however much it is."""

from vitrail.report.charts.chart_timeline import Event, draw_timeline


def test_a_thousand_rounds_of_a_hundred_sites_are_still_a_picture():
    sites = [f"site-{n:03d}" for n in range(100)]
    events = [Event(s, r, 8.0, "release", r % 2 == 0) for s in sites for r in range(1000)]
    for width in (330.0, 860.0):
        drawing = draw_timeline(events, sites, "t", width)
        assert len(drawing.shapes) < 6000 and drawing.height < 1500
        assert "60 sites not drawn" in drawing.about
