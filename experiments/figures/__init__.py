"""Figures of the docs that no run is needed for."""
