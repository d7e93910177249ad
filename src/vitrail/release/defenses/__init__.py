"""Defenses: what stands between a trained model and the wire. One file each."""
