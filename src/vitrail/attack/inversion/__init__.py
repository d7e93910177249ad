"""Gradient inversion: images, labels and patches out of what a site released."""
