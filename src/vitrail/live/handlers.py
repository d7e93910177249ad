"""The pages of a run beside Watch and Ask, and those of a planned one: path, what answers it,
whether it changes anything."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from vitrail.live import annotate_page, browse_page, decide_page, leaves_page, plan_page
from vitrail.live.catalog import LiveRun
from vitrail.live.draft import Draft

Work = Callable[[Request, LiveRun], Response]
DraftWork = Callable[[Request, Draft], Response]
DrawWork = Callable[[Request, annotate_page.Desk], Response]

DRAW: tuple[tuple[str, DrawWork, bool], ...] = (
    ("annotate", annotate_page.answer_annotate, False),
    ("square", annotate_page.answer_square, False),
    ("annotations.json", annotate_page.answer_file, False),
    ("annotations", annotate_page.answer_add, True),
    ("unannotate", annotate_page.answer_remove, True),
)
HANDLERS: tuple[tuple[str, Work, bool], ...] = (
    ("browse", browse_page.answer_browse, False),
    ("parts", browse_page.answer_parts, False),
    ("audit", decide_page.answer_audit, False),
    ("decided.json", decide_page.answer_decided, False),
    ("decisions.jsonl", decide_page.answer_decisions, False),
    ("remedy-state", decide_page.answer_remedy_state, False),
    ("decide", decide_page.answer_decide, True),
    ("remedy", decide_page.answer_remedy, True),
    ("leaves", leaves_page.answer_leaves, False),
    ("ledger.json", leaves_page.answer_ledger, False),
    *DRAW,
)
PLAN_HANDLERS: tuple[tuple[str, DraftWork, bool], ...] = (
    ("", plan_page.answer_plan, False),
    ("sharing", plan_page.answer_sharing, False),
    ("preview", plan_page.answer_preview, True),
    ("share", plan_page.answer_share, True),
    ("consent", plan_page.answer_consent, True),
    *DRAW,
)
