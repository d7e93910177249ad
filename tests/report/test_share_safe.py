"""A report may be shared unless somebody asked for images: no pixel, no map, no name."""

import pytest

from vitrail.errors import RunError

SECRET, SITE = "SECRET", "../../x"


def test_a_report_shows_nothing_of_a_sites_images_unasked(secret, report):
    document = report(secret)
    assert not document.is_private
    assert "data:image" not in document.html
    assert "<image" not in document.html and "<img" not in document.html
    assert SECRET not in document.html  # file names, patients, the manifest's name
    assert str(secret.parent) not in document.html  # where it lies on this machine


def test_naming_a_site_gives_numbers_and_boxes_but_no_pixel_and_no_map(secret, report):
    document = report(secret, site=SITE)
    assert "data:image" not in document.html and "<image" not in document.html
    assert SECRET not in document.html
    assert "sum, which is the logit" in document.html  # so the images were looked at


def test_figures_and_tables_of_a_shared_report_name_nobody(secret, report):
    for leaf in report(secret, site=SITE).leaves:
        text = leaf.to_csv() if hasattr(leaf, "to_csv") else leaf.draw(860).to_svg_file()
        assert SECRET not in text


def test_with_images_every_section_that_shows_them_is_marked(secret, report, read_page):
    document = report(secret, site=SITE, with_images=True)
    assert document.is_private
    assert "data:image/png" in document.html
    page = read_page(document.html)
    marked = {name for name, text in page.sections.items() if "not for sharing" in text}
    shown = {name for name, raw in page.raw.items() if "<use" in raw}
    assert shown and shown == marked
    assert "not for sharing" in page.header
    assert f"{SECRET}-file" not in document.html and f"{SECRET}-patient" not in document.html


def test_without_a_site_no_sites_image_is_shown_even_if_asked_for(secret, report):
    document = report(secret, with_images=True)
    assert "data:image" not in document.html  # the server has no images of its own here
    assert "--site NAME" in document.html


def test_embedded_birds_are_public(birds, report):
    document = report(birds / "myth")
    assert not document.is_private
    assert "data:image/png" in document.html
    assert "not for sharing" not in document.html


def test_a_site_that_does_not_exist_is_refused(birds, report):
    with pytest.raises(RunError, match="there is no site"):
        report(birds / "myth", site="site-99")
