"""The application: addresses to pages; what computes runs in threads, behind a short queue."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from vitrail.errors import VitrailError
from vitrail.live import answer_files, ask_page, watch_page
from vitrail.live.catalog import Catalog, LiveRun
from vitrail.live.form_fields import MOST_FORM
from vitrail.live.guard import Access, Guard
from vitrail.live.handlers import HANDLERS, PLAN_HANDLERS
from vitrail.live.question import LinkedQuestion
from vitrail.live.uploads import TooLargeError, Uploads, receive_body
from vitrail.report.blocks import WIDE
from vitrail.report.charts.raster import render_png
from vitrail.report.document_page import read_style
from vitrail.report.html import Html, join

_LOG = logging.getLogger("vitrail.live")
_AT_ONCE, _WAITING = 2, 64
T = TypeVar("T")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
PNG, SVG = "image/png", "image/svg+xml"


class BusyError(VitrailError):
    """More is asked than can be answered soon."""


@dataclass
class Live:
    """What all requests share."""

    catalog: Catalog
    uploads: Uploads = field(default_factory=Uploads)
    waiting: int = 0
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def compute(self, work: Callable[[], T]) -> T:
        """Run work in a thread, two at once; beyond the queue it is refused, not piled up."""
        if self.waiting >= _WAITING:
            raise BusyError("too much is asked at once", hint="Try again in a second.")
        self.waiting += 1
        try:
            async with self._slots:
                return await run_in_threadpool(work)
        finally:
            self.waiting -= 1


def make_application(catalog: Catalog, access: Access) -> Starlette:
    """The application behind its guard."""
    live = Live(catalog)
    routes = [Route("/assets/{name}", _answer_asset), *_list_routes(live)]
    application = Starlette(routes=routes, middleware=[Middleware(Guard, access=access)])
    application.state.live = live
    return application


def _list_routes(live: Live) -> list[Route]:
    def page(path: str, work: Callable[[Request, LiveRun], Response], post: bool = False) -> Route:
        return Route(
            path,
            _make_handler(live, live.catalog.find, work),
            methods=["POST"] if post else ["GET"],
        )

    run = "/run/{run}"
    return [
        Route("/", _make_plain(live, watch_page.render_watch_page)),
        Route("/runs", _make_plain(live, watch_page.render_run_list)),
        Route("/upload", functools.partial(_receive_upload, live), methods=["POST"]),
        page(run, lambda _, r: HTMLResponse(watch_page.render_run_page(r))),
        page(f"{run}/state", lambda _, r: HTMLResponse(watch_page.render_run_state(r))),
        page(f"{run}/metrics.json", lambda _, r: _to_json(watch_page.dump_rows(r))),
        page(f"{run}/figure/{{name}}.{{kind}}", _answer_figure),
        page(f"{run}/stop", _answer_stop, post=True),
        page(f"{run}/resume", _answer_resume, post=True),
        page(f"{run}/ask", _answer_ask),
        page(f"{run}/answer", functools.partial(_answer_fragment, live)),
        page(f"{run}/answer.{{kind}}", functools.partial(_answer_download, live)),
        page(f"{run}/image", functools.partial(_answer_image, live)),
        *(page(f"{run}/{path}", work, post) for path, work, post in HANDLERS),
        *(
            Route(
                f"/plan/{{run}}/{path}".rstrip("/"),
                _make_handler(live, live.catalog.drafts.get, work),
                methods=["POST"] if post else ["GET"],
            )
            for path, work, post in PLAN_HANDLERS
        ),
    ]  # fmt: skip


def _make_plain(live: Live, render: Callable[[Catalog], str]) -> Handler:
    async def handle(_: Request) -> Response:
        return await _guard_errors(live, lambda: HTMLResponse(render(live.catalog)))

    return handle


def _make_handler(
    live: Live, find: Callable[[str], T | None], work: Callable[[Request, T], Response]
) -> Handler:
    async def handle(request: Request) -> Response:
        if request.method == "POST":
            try:
                request.state.body = await receive_body(request, MOST_FORM)
            except TooLargeError as err:
                return _make_error(err, 413)
        run = find(request.path_params["run"])
        if run is None:
            return _make_error(VitrailError("there is no such run here"), 404)
        return await _guard_errors(live, lambda: work(request, run))

    return handle


async def _guard_errors(live: Live, work: Callable[[], Response]) -> Response:
    try:
        return await live.compute(work)
    except BusyError as err:
        answer = _make_error(err, 503)
        answer.headers["retry-after"] = "1"
        return answer
    except VitrailError as err:
        return _make_error(err, 400)
    except OSError as err:  # a file that went while it was read
        return _make_error(VitrailError(f"a file cannot be read ({err.strerror})"), 400)
    except Exception:
        _LOG.exception("an answer failed")  # on the terminal; the page says nothing of this machine
        return _make_error(VitrailError("this could not be answered: the terminal says why"), 500)


def _make_error(error: Exception, status: int) -> Response:
    """One sentence; folders of this machine are no secret here, so it may name them."""
    headers = {"connection": "close"} if status == 413 else None  # the rest is not waited for
    return HTMLResponse(ask_page.describe_error(error), status, headers=headers)


async def _answer_asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name == "style.css":
        return Response(read_style() + _read_live("live.css"), media_type="text/css")
    if name == "live.js":
        script = _read_live("live.js")
        return Response(script, media_type="text/javascript")
    return PlainTextResponse("there is no such file", 404)


@functools.cache
def _read_live(name: str) -> str:
    from importlib.resources import files

    return (files("vitrail.live.assets") / name).read_text(encoding="utf-8")


async def _receive_upload(live: Live, request: Request) -> Response:
    try:
        data = await live.uploads.receive(request)
    except TooLargeError as err:
        return _make_error(err, 413)
    name = (
        request.headers.get("x-name", "image")
        .encode("latin-1", "replace")
        .decode("utf-8", "replace")
    )
    return JSONResponse({"image": f"up-{live.uploads.put(name, data)}"})


def _answer_ask(request: Request, run: LiveRun) -> Response:
    asked = LinkedQuestion.parse(request.query_params)
    return HTMLResponse(ask_page.render_ask_page(run, asked, None))


def _answer_fragment(live: Live, request: Request, run: LiveRun) -> Response:
    asked = LinkedQuestion.parse(request.query_params)
    answer = ask_page.answer_question(run, live.uploads, asked)
    parts: list[Html] = [ask_page.render_answer(run, asked, answer)]
    if asked.other:
        name, image = ask_page.open_linked_image(run, live.uploads, asked.other)
        plain = LinkedQuestion(image=asked.other, model=asked.model)
        second = ask_page.answer_question(run, live.uploads, plain)
        parts.append(ask_page.render_comparison(run, name, image, second))
    return HTMLResponse(join(parts))


def _answer_download(live: Live, request: Request, run: LiveRun) -> Response:
    asked = LinkedQuestion.parse(request.query_params)
    answer = ask_page.answer_question(run, live.uploads, asked)
    kind = request.path_params["kind"]
    if kind == "json":
        return _to_json(json.dumps(answer.to_json()))
    if kind == "csv":
        return Response(answer_files.write_evidence_csv(answer), media_type="text/csv")
    if kind == "png":
        return Response(answer_files.write_seen_png(answer), media_type=PNG)
    if kind == "svg":
        _, image = ask_page.open_linked_image(run, live.uploads, asked.image)
        return Response(answer_files.write_answer_svg(image, asked, answer), media_type=SVG)
    raise VitrailError("there is json, csv, png and svg")


def _answer_image(live: Live, request: Request, run: LiveRun) -> Response:
    image = request.query_params.get("image", "")
    _, opened = ask_page.open_linked_image(run, live.uploads, image)
    headers = {"x-size": f"{opened.size[1]},{opened.size[0]}"}
    return Response(answer_files.write_shown_png(opened), media_type=PNG, headers=headers)


def _answer_figure(request: Request, run: LiveRun) -> Response:
    record = run.read()
    wanted = f"{run.name}-{request.path_params['name']}"
    figure = next((f for f in watch_page.make_watch_figures(record) if f.name == wanted), None)
    if figure is None or figure.table is None:
        raise VitrailError("there is no such figure")
    kind = request.path_params["kind"]
    if kind == "svg":
        return Response(figure.draw(WIDE).to_svg_file(), media_type=SVG)
    if kind == "png":
        return Response(render_png(figure.draw(WIDE)), media_type=PNG)
    return Response(figure.table.to_csv(), media_type="text/csv")


def _answer_stop(_: Request, run: LiveRun) -> Response:
    watch_page.stop_run(run)
    return HTMLResponse(watch_page.render_run_state(run))


def _answer_resume(_: Request, run: LiveRun) -> Response:
    watch_page.resume_run(run)
    return HTMLResponse(watch_page.render_run_state(run))


def _to_json(text: str) -> Response:
    return Response(text, media_type="application/json")
