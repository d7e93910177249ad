"""The engine: rounds, checkpoints, resume; in this process or in worker processes."""
