"""Everything a plug-in imports: `from vitrail.plugin import METHODS, Method, Options`.

A plug-in is a Python file that `run.plugins` names. What stands here stays where it is; what a
plug-in would import from anywhere else may move. `vitrail new-method NAME --kind KIND` writes one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitrail.aggregate import RULES, Group, PerSiteRule, Rule, Sums
from vitrail.aggregate.rule import Tensors
from vitrail.config import Loaded
from vitrail.config.schema import Aggregate, Data, Model
from vitrail.config.section import Count, NonNegative, Positive, Share
from vitrail.data import SOURCES, ImageSet, Problem, Record, Records
from vitrail.data.normalize import Normalize
from vitrail.engine.loggers import LOGGERS, Logger
from vitrail.errors import ConfigError, DataError, RunError
from vitrail.explain.attribution import ATTRIBUTIONS, Settings, attribute, compute_logits
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.sharing.share_filters import DETECTORS, EMBEDDINGS
from vitrail.local.terms import Batch, Objective, Terms
from vitrail.methods import METHODS, About, Method, Options, Server, Stage
from vitrail.methods.base.pulls import make_constant_pull, make_proximal_pull
from vitrail.models import BACKBONES, HEADS, Backbone, FlatModel, Head, Network, PartHead, Piece
from vitrail.models import build as build_classifier
from vitrail.models.backbone import Norm, Step, make_norm
from vitrail.models.flat import Layout, Region
from vitrail.models.heads.head import Outputs
from vitrail.registry import load_plugins
from vitrail.release import DEFENSES, Additive, Defense, Field, Noise, Setting, Update
from vitrail.release.defenses.private import PrivateDefense
from vitrail.release.message import ANY, KEEP
from vitrail.report.blocks import Block, Figure, FoldedTable, MissingNote
from vitrail.report.html import Html, el, format_html
from vitrail.report.html_table import Column, Table
from vitrail.report.plugin_sections import SECTIONS
from vitrail.report.run_record import RunRecord
from vitrail.rng import Key, derive_server_key
from vitrail.sweep.tables import TABLES, OnCell

if TYPE_CHECKING:
    from vitrail.attack import (
        ATTACKS,
        Attack,
        Budget,
        Choice,
        Findings,
        InversionAttack,
        Job,
        Recovery,
        Scene,
        View,
        one_step,
    )
    from vitrail.attack.findings import MembershipResult
    from vitrail.attack.inversion.gradient_matching import Mismatch
    from vitrail.attack.run_attacks import run_attacks
    from vitrail.report.charts.chart_lines import Series, draw_lines
    from vitrail.report.compose import compose
    from vitrail.report.viewer import Viewer

# Imported when they are asked for: attacks and charts take as long as all the rest, and every
# worker of a run imports what its plug-ins import.
_LATER = {
    "ATTACKS": "vitrail.attack",
    "Attack": "vitrail.attack",
    "Budget": "vitrail.attack",
    "Choice": "vitrail.attack",
    "Findings": "vitrail.attack",
    "InversionAttack": "vitrail.attack",
    "MembershipResult": "vitrail.attack.findings",
    "View": "vitrail.attack",
    "Job": "vitrail.attack",
    "Mismatch": "vitrail.attack.inversion.gradient_matching",
    "Recovery": "vitrail.attack",
    "Scene": "vitrail.attack",
    "Series": "vitrail.report.charts.chart_lines",
    "Viewer": "vitrail.report.viewer",
    "compose": "vitrail.report.compose",
    "draw_lines": "vitrail.report.charts.chart_lines",
    "one_step": "vitrail.attack",
    "run_attacks": "vitrail.attack.run_attacks",
}

__all__ = [  # noqa: RUF022  by kind, in the order of a run
    # a source of images
    "SOURCES",
    "Data",
    "ImageSet",
    "Problem",
    "Record",
    "Records",
    # a logger
    "LOGGERS",
    "Logger",
    # a backbone
    "BACKBONES",
    "Backbone",
    "Norm",
    "Step",
    "build_classifier",
    "make_norm",
    # a head
    "HEADS",
    "Head",
    "Model",
    "Network",
    "Outputs",
    "PartHead",
    "Piece",
    # a method
    "METHODS",
    "ANY",
    "KEEP",
    "About",
    "Batch",
    "Context",
    "Field",
    "FlatModel",
    "Layout",
    "Method",
    "Metrics",
    "Objective",
    "OptimizerSettings",
    "Region",
    "Server",
    "Site",
    "Stage",
    "Sums",
    "Terms",
    "make_constant_pull",
    "make_proximal_pull",
    # what is shared of images, and in which coordinates they are compared
    "DETECTORS",
    "EMBEDDINGS",
    # a defense
    "DEFENSES",
    "Additive",
    "Defense",
    "Noise",
    "PrivateDefense",
    "Setting",
    "Update",
    # an aggregation rule
    "RULES",
    "Aggregate",
    "Group",
    "PerSiteRule",
    "Rule",
    "Tensors",
    # an attribution
    "ATTRIBUTIONS",
    "Settings",
    "attribute",
    "compute_logits",
    # an attack
    "ATTACKS",
    "Attack",
    "Budget",
    "Choice",
    "Findings",
    "InversionAttack",
    "Job",
    "MembershipResult",
    "Mismatch",
    "Recovery",
    "Scene",
    "View",
    "one_step",
    "run_attacks",
    # a section of the report
    "SECTIONS",
    "Block",
    "Column",
    "Figure",
    "FoldedTable",
    "Html",
    "MissingNote",
    "RunRecord",
    "Series",
    "Table",
    "Viewer",
    "compose",
    "draw_lines",
    "el",
    "format_html",
    # a table that a grid ends in
    "TABLES",
    "Loaded",
    "OnCell",
    # options of any of them, and errors that say what to do
    "ConfigError",
    "Count",
    "DataError",
    "NonNegative",
    "Options",
    "Positive",
    "RunError",
    "Share",
    # randomness, pixels, and tests
    "Key",
    "Normalize",
    "derive_server_key",
    "load_plugins",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"vitrail.plugin has no {name!r}")
