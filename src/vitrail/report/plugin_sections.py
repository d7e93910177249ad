"""Sections of the report that plug in: a function of a run's record that returns blocks."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Protocol

from vitrail.registry import Registry
from vitrail.report.blocks import Block
from vitrail.report.run_record import RunRecord


class SectionMaker(Protocol):
    """Makes what a section shows of one run. It sees figures and ledgers, and no image."""

    def __call__(self, record: RunRecord) -> Sequence[Block]:
        """The blocks; none where there is nothing to show: the section is then left out."""
        ...


SECTIONS: Registry[SectionMaker] = Registry("section of the report", "run.plugins")


def describe_section(name: str) -> tuple[str, str]:
    """Its title, made of its name, and the sentence under it, the first of its docstring."""
    lead = (inspect.getdoc(SECTIONS[name]) or "").split("\n\n")[0]
    return name.replace("-", " ").capitalize(), " ".join(lead.split())
