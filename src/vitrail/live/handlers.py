"""The pages of a run beside Watch and Ask: path, what answers it, whether it changes anything."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from vitrail.live import browse_page, decide_page, leaves_page
from vitrail.live.catalog import LiveRun

Work = Callable[[Request, LiveRun], Response]

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
)
