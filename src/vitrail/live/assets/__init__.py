"""Style and script of the live application."""
