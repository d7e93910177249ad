"""Phases: what a site does with its model in one turn."""
