"""Shortcuts injected into some classes of some sites, and a record of where they are."""
