"""Loggers: what a run's figures are also written to, for tools that people have already."""

import sys

from vitrail.engine.loggers.logger import LOGGERS, Logger, LoggerGroup, check_loggers
from vitrail.registry import import_modules

import_modules(sys.modules[__name__])

__all__ = ["LOGGERS", "Logger", "LoggerGroup", "check_loggers"]
