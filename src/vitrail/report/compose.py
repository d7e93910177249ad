"""Making the report of some runs: read, look, write sections, put them on one page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitrail.errors import ConfigError, VitrailError
from vitrail.registry import load_plugins
from vitrail.report.blocks import Block, MissingNote, Section, iterate_leaves, render_block
from vitrail.report.charts.scale import format_count
from vitrail.report.document_page import render_document, render_run_views
from vitrail.report.html import Html, format_html, join
from vitrail.report.photos import Photos
from vitrail.report.plugin_sections import SECTIONS, describe_section
from vitrail.report.run_record import RunRecord
from vitrail.report.sections.alarms_section import make_alarm_blocks
from vitrail.report.sections.audit_pictures import read_finding_pictures
from vitrail.report.sections.audit_section import make_audit_blocks
from vitrail.report.sections.comparison_section import load_comparisons, make_comparison_blocks
from vitrail.report.sections.fidelity_section import make_fidelity_blocks
from vitrail.report.sections.participation_section import make_participation_blocks
from vitrail.report.sections.parts_section import make_parts_blocks
from vitrail.report.sections.privacy_section import make_privacy_blocks
from vitrail.report.sections.reproduction_section import make_reproduction_blocks
from vitrail.report.sections.summary_section import make_summary
from vitrail.report.sections.training_section import make_training_blocks
from vitrail.report.sections.why_section import make_why_blocks
from vitrail.report.viewer import ReportView, Viewer, open_view
from vitrail.report.write_figures import Leaf
from vitrail.runs.opened_run import Run
from vitrail.sweep.compare_runs import Comparison

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """The document, and every figure and table in it."""

    html: str
    leaves: tuple[Leaf, ...]
    is_private: bool  # whether it shows images that are not public


@dataclass
class _ReportRun:
    """One run while its report is written."""

    record: RunRecord
    view: ReportView | MissingNote
    photos: Photos
    viewer: Viewer

    @property
    def is_private(self) -> bool:
        return self.viewer.with_images and not self.record.is_public


def compose(paths: Sequence[Path], viewer: Viewer, tell: Tell | None = None) -> Report:
    """The report of one run or several; the first one is what others are compared with."""
    if not paths:
        raise ConfigError("there is no run to report on", where="report")
    tell = tell or (lambda _: None)
    report_runs = [
        _open_run(Run(path), name, viewer, tell) for path, name in zip(paths, make_names(paths))
    ]
    tables = load_comparisons(paths)
    tell("writing")
    parts: list[tuple[Section, list[Block]]] = [
        _make_run_section(
            "summary",
            "Summary",
            _SUMMARY,
            report_runs,
            lambda r: (make_summary(r.record, tables),),
        ),
        _make_run_section(
            "training",
            "Training",
            _TRAINING,
            report_runs,
            lambda r: make_training_blocks(r.record),
        ),
        *_make_optional_section(
            "participation", "Who took part", _PARTICIPATION, report_runs, make_participation_blocks
        ),
        *_make_optional_section("alarms", "Alarms", _ALARMS, report_runs, make_alarm_blocks),
        _make_run_section("parts", "What the model looks for", _PARTS, report_runs, _make_parts),
        _make_run_section("why", "Why", _WHY, report_runs, _make_why),
        _make_fidelity_section(report_runs),
        _make_run_section("audit", "Audit", _AUDIT, report_runs, _make_audit),
        _make_run_section(
            "privacy", "Privacy", _PRIVACY, report_runs, lambda r: make_privacy_blocks(r.record)
        ),
        _make_comparison_section(tables, report_runs),
        *_make_plugin_sections(report_runs),
        _make_run_section("reproduce", "Reproduce", _REPRODUCE, report_runs, _make_reproduction),
    ]
    is_private = any(report_run.is_private for report_run in report_runs)
    sections = [section for section, _ in parts]
    body = render_document(
        _write_title(report_runs),
        _write_lead(report_runs),
        sections,
        [r.record.name for r in report_runs],
        is_private,
    )
    # Photographs are asked for while sections are written, and must come before them.
    photographs = join(report_run.photos.render_store() for report_run in report_runs)
    body = body.replace('<main id="main">', f'<main id="main">{photographs}', 1)
    leaves = [leaf for _, blocks in parts for leaf in iterate_leaves(blocks)]
    return Report(body, tuple(leaves), is_private)


_SUMMARY = "What happened, in sentences made from the data; each leads to its evidence."
_TRAINING = "How good the model got, round by round and site by site, and what that took."
_PARTICIPATION = "Which sites came, were absent, were refused, declined or left, and why."
_ALARMS = "Which sites sent updates unlike the others', round by round."
_PARTS = "The parts that the model knows of each class, and whether the sites agree on them."
_WHY = "Why some images were taken for what they were taken for, in numbers that add up."
_FIDELITY = "Whether a defense, or another method, leaves explanations as they were."
_AUDIT = "Whether one site taught the model something that it should not know."
_PRIVACY = "What left each site, when, how much, and under which guarantee."
_COMPARE = "Runs side by side, and whether a difference outlasts the choice of the seed."
_REPRODUCE = "What somebody else needs to get the same numbers."


def make_names(paths: Sequence[Path]) -> list[str]:
    """A short name for each run, no two the same."""
    names: list[str] = []
    for path in paths:
        stem = path.resolve().name or "run"
        name, number = stem, 2
        while name in names:
            name, number = f"{stem}-{number}", number + 1
        names.append(name)
    return names


def _open_run(run: Run, name: str, viewer: Viewer, tell: Tell) -> _ReportRun:
    viewer.check(run)
    try:
        load_plugins(run.config.run.plugins, run.loaded.base, stored=True)
    except VitrailError as err:  # perhaps they are not on this machine; the rest can be told
        tell(f"without the plug-ins of {name}: {err}")
    tell(f"reading {name}")
    record = RunRecord.read(run, name)
    view = open_view(record, viewer)
    photos = Photos(
        name, view.images if isinstance(view, ReportView) and view.shows_pixels else None
    )
    return _ReportRun(record, view, photos, viewer)


def _make_run_section(
    anchor: str,
    title: str,
    lead: str,
    report_runs: Sequence[_ReportRun],
    write: Callable[[_ReportRun], tuple[Block, ...]],
) -> tuple[Section, list[Block]]:
    """A section with a part for each run."""
    blocks: list[Block] = []
    views = []
    for report_run in report_runs:
        run_blocks = write(report_run)
        blocks += run_blocks
        views.append((report_run.record.name, join(render_block(block) for block in run_blocks)))
    body = render_run_views(views)
    return Section(
        anchor, title, format_html(lead), (body,), _shows_private_images(report_runs, body)
    ), blocks


def _make_optional_section(
    name: str,
    title: str,
    lead: str,
    report_runs: Sequence[_ReportRun],
    make_blocks: Callable[[RunRecord], tuple[Block, ...]],
) -> Iterator[tuple[Section, list[Block]]]:
    """A section that is there where any run has something to say in it."""
    section, blocks = _make_run_section(
        name, title, lead, report_runs, lambda r: make_blocks(r.record)
    )
    if blocks:
        yield section, blocks


def _make_plugin_sections(
    report_runs: Sequence[_ReportRun],
) -> Iterator[tuple[Section, list[Block]]]:
    """The sections of plug-ins, by name; one without a block is left out."""
    for name in SECTIONS:
        title, lead = describe_section(name)
        write = partial(_make_plugin_blocks, name)
        section, blocks = _make_run_section(f"own-{name}", title, lead, report_runs, write)
        if blocks:
            yield section, blocks


def _make_plugin_blocks(name: str, report_run: _ReportRun) -> tuple[Block, ...]:
    return tuple(SECTIONS[name](report_run.record))


def _shows_private_images(report_runs: Sequence[_ReportRun], body: Html) -> bool:
    """Whether a section shows an image that is not public."""
    return any(report_run.is_private for report_run in report_runs) and "<use " in body


def _make_parts(report_run: _ReportRun) -> tuple[Block, ...]:
    return make_parts_blocks(report_run.record, report_run.view, report_run.photos)


def _make_why(report_run: _ReportRun) -> tuple[Block, ...]:
    return make_why_blocks(report_run.record, report_run.view, report_run.photos)


def _make_audit(report_run: _ReportRun) -> tuple[Block, ...]:
    sites = (
        report_run.viewer.list_readable_sites(report_run.record)
        if report_run.viewer.may_see(report_run.record)
        else ()
    )
    return make_audit_blocks(report_run.record, read_finding_pictures(report_run.record.run, sites))


def _make_reproduction(report_run: _ReportRun) -> tuple[Block, ...]:
    return make_reproduction_blocks(report_run.record, paths=report_run.viewer.with_images)


def _make_fidelity_section(report_runs: Sequence[_ReportRun]) -> tuple[Section, list[Block]]:
    blocks = make_fidelity_blocks(
        [r.record for r in report_runs],
        [r.view for r in report_runs],
        [r.photos for r in report_runs],
    )
    body = join(render_block(block) for block in blocks)
    section = Section(
        "fidelity",
        "Fidelity",
        format_html(_FIDELITY),
        (body,),
        _shows_private_images(report_runs, body),
    )
    return section, list(blocks)


def _make_comparison_section(
    tables: Sequence[Comparison], report_runs: Sequence[_ReportRun]
) -> tuple[Section, list[Block]]:
    blocks = make_comparison_blocks(tables, [r.record.name for r in report_runs])
    return Section("compare", "Compare", format_html(_COMPARE), blocks), list(blocks)


def _write_title(report_runs: Sequence[_ReportRun]) -> str:
    if len(report_runs) > 1:
        return f"Report on {len(report_runs)} runs"
    run = report_runs[0].record.run
    if run.end == "site":
        return f"{run.config.method.name}: the part of site {', '.join(run.sites)} in a federation"
    return f"{run.config.method.name}: a federation of {format_count(len(run.sites), 'site')}"


def _write_lead(report_runs: Sequence[_ReportRun]) -> Html:
    if len(report_runs) > 1:
        return format_html("{}", ", ".join(r.record.name for r in report_runs))
    run = report_runs[0].record.run
    seen = {"simulation": "", "coordinator": " · as the coordinator has it", "site": ""}[run.end]
    return format_html(
        "{} · {} on {}{}",
        report_runs[0].record.name,
        run.config.method.name,
        run.card["backbone"],
        seen,
    )
