"""The coordinator's end of a real federation."""
