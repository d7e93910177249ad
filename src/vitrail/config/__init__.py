"""Configuration: one TOML file describes a run completely."""

from vitrail.config.load import Loaded, dump, load, parse, to_stored_tree
from vitrail.config.schema import Config

__all__ = ["Config", "Loaded", "dump", "load", "parse", "to_stored_tree"]
