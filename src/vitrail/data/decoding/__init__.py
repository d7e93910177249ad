"""From encoded bytes to one array of 8-bit squares of one size."""
