"""Figures drawn by matplotlib, for slides and papers."""
