"""Attacks on images that sites shared: denoising, matching, membership."""
