"""The report: one offline HTML file of one run or several, with every figure and table behind it."""

from __future__ import annotations
