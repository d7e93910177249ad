"""Colors by role: what is written or drawn can be told from its ground."""

import pytest

from vitrail.report.charts.palette import ROLES


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    brighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("role", ["ink", "soft", "for", "against", "bad", "warn", "fine"])
@pytest.mark.parametrize("ground", ["paper", "card", "quiet"])
def test_text_can_be_read_by_day_and_night(mode, role, ground):
    assert contrast(ROLES[role][mode], ROLES[ground][mode]) >= 4.5  # WCAG 2.2, 1.4.3


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("role", [f"c{n}" for n in range(1, 8)])
def test_lines_stand_out_from_the_page(mode, role):
    assert contrast(ROLES[role][mode], ROLES["card"][mode]) >= 3  # WCAG 2.2, 1.4.11
