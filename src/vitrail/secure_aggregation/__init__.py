"""Secure aggregation: masks that cancel in the sum, so that the server sees no single update."""
