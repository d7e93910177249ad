"""Figures, tables and comparisons of finished runs."""
