"""The sections of the report of a run."""
