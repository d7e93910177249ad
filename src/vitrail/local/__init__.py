"""Local training: the one loop, its phases, and the figures of what came out."""
