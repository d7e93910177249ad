"""Making the report of some runs: read, look, write sections, put them on one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitrail.engine.loaded import Run
from vitrail.errors import ConfigError
from vitrail.report.compare import Comparison
from vitrail.report.document.account import Account
from vitrail.report.document.auditing import auditing
from vitrail.report.document.block import Block, Missing, Section, leaves, render
from vitrail.report.document.comparing import comparing, comparisons
from vitrail.report.document.fidelity import fidelity
from vitrail.report.document.markup import Html, join, say
from vitrail.report.document.page import each_run, page
from vitrail.report.document.parts import parts
from vitrail.report.document.photos import Photos
from vitrail.report.document.privacy import privacy
from vitrail.report.document.reproducing import reproducing
from vitrail.report.document.sights import sights_of
from vitrail.report.document.summary import summary
from vitrail.report.document.training import training
from vitrail.report.document.why import why
from vitrail.report.document.window import Viewer, Window, window
from vitrail.report.document.write import Leaf

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """The document, and every figure and table in it."""

    html: str
    leaves: tuple[Leaf, ...]
    private: bool  # whether it shows images that are not public


@dataclass
class _Desk:
    """One run while its report is written."""

    account: Account
    seen: Window | Missing
    photos: Photos
    viewer: Viewer

    @property
    def private(self) -> bool:
        return self.viewer.with_images and not self.account.public


def compose(paths: Sequence[Path], viewer: Viewer, tell: Tell | None = None) -> Report:
    """The report of one run or several; the first one is what others are compared with."""
    if not paths:
        raise ConfigError("there is no run to report on", where="report")
    tell = tell or (lambda _: None)
    desks = [_desk(Run(path), name, viewer, tell) for path, name in zip(paths, names_of(paths))]
    tables = comparisons(paths)
    tell("writing")
    made: list[tuple[Section, list[Block]]] = [
        _each("summary", "Summary", _SUMMARY, desks, lambda d: (summary(d.account, tables),)),
        _each("training", "Training", _TRAINING, desks, lambda d: training(d.account)),
        _each("parts", "What the model looks for", _PARTS, desks, _parts),
        _each("why", "Why", _WHY, desks, _why),
        _fidelity(desks),
        _each("audit", "Audit", _AUDIT, desks, _audit),
        _each("privacy", "Privacy", _PRIVACY, desks, lambda d: privacy(d.account)),
        _compare(tables, desks),
        _each("reproduce", "Reproduce", _REPRODUCE, desks, _reproduce),
    ]
    private = any(desk.private for desk in desks)
    sections = [section for section, _ in made]
    body = page(_title(desks), _lead(desks), sections, [d.account.name for d in desks], private)
    # Photographs are asked for while sections are written, and must come before them.
    photographs = join(desk.photos.stored() for desk in desks)
    body = body.replace('<main id="main">', f'<main id="main">{photographs}', 1)
    found = [leaf for _, blocks in made for leaf in leaves(blocks)]
    return Report(body, tuple(found), private)


_SUMMARY = "What happened, in sentences made from the data; each leads to its evidence."
_TRAINING = "How good the model got, round by round and site by site, and what that took."
_PARTS = "The parts that the model knows of each class, and whether the sites agree on them."
_WHY = "Why some images were taken for what they were taken for, in numbers that add up."
_FIDELITY = "Whether a defense, or another method, leaves explanations as they were."
_AUDIT = "Whether one site taught the model something that it should not know."
_PRIVACY = "What left each site, when, how much, and under which guarantee."
_COMPARE = "Runs side by side, and whether a difference outlasts the choice of the seed."
_REPRODUCE = "What somebody else needs to get the same numbers."


def names_of(paths: Sequence[Path]) -> list[str]:
    """A short name for each run, no two the same."""
    found: list[str] = []
    for path in paths:
        stem = path.resolve().name or "run"
        name, more = stem, 2
        while name in found:
            name, more = f"{stem}-{more}", more + 1
        found.append(name)
    return found


def _desk(run: Run, name: str, viewer: Viewer, tell: Tell) -> _Desk:
    viewer.check(run)
    tell(f"reading {name}")
    account = Account.of(run, name)
    seen = window(account, viewer)
    photos = Photos(name, seen.images if isinstance(seen, Window) and seen.shown else None)
    return _Desk(account, seen, photos, viewer)


def _each(
    anchor: str,
    title: str,
    lead: str,
    desks: Sequence[_Desk],
    write: Callable[[_Desk], tuple[Block, ...]],
) -> tuple[Section, list[Block]]:
    """A section with a part for each run."""
    blocks: list[Block] = []
    inside = []
    for desk in desks:
        mine = write(desk)
        blocks += mine
        inside.append((desk.account.name, join(render(block) for block in mine)))
    body = each_run(inside)
    return Section(anchor, title, say(lead), (body,), _marked(desks, body)), blocks


def _marked(desks: Sequence[_Desk], body: Html) -> bool:
    """Whether a section shows an image that is not public."""
    return any(desk.private for desk in desks) and "<use " in body


def _parts(desk: _Desk) -> tuple[Block, ...]:
    return parts(desk.account, desk.seen, desk.photos)


def _why(desk: _Desk) -> tuple[Block, ...]:
    return why(desk.account, desk.seen, desk.photos)


def _audit(desk: _Desk) -> tuple[Block, ...]:
    shown = desk.viewer.sites(desk.account) if desk.viewer.sees(desk.account) else ()
    return auditing(desk.account, sights_of(desk.account.run, shown))


def _reproduce(desk: _Desk) -> tuple[Block, ...]:
    return reproducing(desk.account, paths=desk.viewer.with_images)


def _fidelity(desks: Sequence[_Desk]) -> tuple[Section, list[Block]]:
    blocks = fidelity(
        [d.account for d in desks], [d.seen for d in desks], [d.photos for d in desks]
    )
    body = join(render(block) for block in blocks)
    section = Section("fidelity", "Fidelity", say(_FIDELITY), (body,), _marked(desks, body))
    return section, list(blocks)


def _compare(tables: Sequence[Comparison], desks: Sequence[_Desk]) -> tuple[Section, list[Block]]:
    blocks = comparing(tables, [d.account.name for d in desks])
    return Section("compare", "Compare", say(_COMPARE), blocks), list(blocks)


def _title(desks: Sequence[_Desk]) -> str:
    if len(desks) > 1:
        return f"Report on {len(desks)} runs"
    run = desks[0].account.run
    return f"{run.config.method.name}: a federation of {len(run.sites)} sites"


def _lead(desks: Sequence[_Desk]) -> Html:
    if len(desks) > 1:
        return say("{}", ", ".join(d.account.name for d in desks))
    run = desks[0].account.run
    return say("{} · {} on {}", desks[0].account.name, run.config.method.name, run.card["backbone"])
