"""Figures for slides and papers, drawn from the same shapes as the charts of the pages."""
