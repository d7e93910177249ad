"""The report: one offline HTML file of one run or several."""

from __future__ import annotations
