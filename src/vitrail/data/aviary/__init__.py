"""The embedded data set: birds in a stained-glass manner, drawn by our own code."""
