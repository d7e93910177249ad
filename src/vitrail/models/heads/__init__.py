"""Heads: what turns a map of features into logits, and the loss that belongs to it."""
