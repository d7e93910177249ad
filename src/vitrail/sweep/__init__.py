"""Grids of runs, and methods side by side."""
