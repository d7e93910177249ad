"""Who may ask the live application: this machine, this browser, from its own pages.

Every request passes four checks before anything is looked up: the name it was sent to (a page
elsewhere whose name was rebound to this machine has another), where it comes from (no other page
may send one), the token, and for everything that changes something the origin once more.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitrail.live.layout import render_refusal

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none, a form of our own has no origin
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PAUSES = (1.0, 60.0)  # seconds after a wrong password: doubled each time, at most
_ADDRESSES = 4096  # whose attempts are remembered
_DAYS = 7  # a cookie opens for so long


class Attempts:
    """Who may try a password now: wrong ones make their own address wait, and nobody else."""

    def __init__(self) -> None:
        self._waits: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def is_open(self, address: str) -> bool:
        """Whether an address need not wait."""
        _, until = self._waits.get(_group_address(address), (0.0, 0.0))
        return time.monotonic() >= until

    def note(self, address: str, is_right: bool) -> None:
        """Remember an attempt: a right one opens, a wrong one doubles the wait."""
        group = _group_address(address)
        pause, _ = self._waits.pop(group, (_PAUSES[0] / 2, 0.0))
        if not is_right:
            pause = min(2 * pause, _PAUSES[1])
            self._waits[group] = (pause, time.monotonic() + pause)
        while len(self._waits) > _ADDRESSES:
            self._waits.popitem(last=False)


def _group_address(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 one, all of which one machine may have."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address
    if known.version == 4:
        return str(known)
    return str(ipaddress.ip_network((known, 64), strict=False))


@dataclass
class Access:
    """Where the application listens, and what opens it."""

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    attempts: Attempts = field(default_factory=Attempts, repr=False)

    @property
    def scheme(self) -> str:
        """http, or https."""
        return "https" if self.tls else "http"

    @property
    def names(self) -> frozenset[str]:
        """The names that requests may be sent to."""
        names = {self.host}
        if self.host in ("127.0.0.1", "::1", "localhost"):
            names = {"127.0.0.1", "localhost", "[::1]"}
        elif ":" in self.host:
            names = {f"[{self.host}]"}
        return frozenset(f"{name}:{self.port}" for name in names)

    @property
    def origins(self) -> frozenset[str]:
        """Where pages of this application come from."""
        return frozenset(f"{self.scheme}://{name}" for name in self.names)

    @property
    def cookie(self) -> str:
        """The name of the cookie: cookies do not know ports, so the port is in it."""
        return f"vitrail-{self.port}"

    @property
    def link(self) -> str:
        """The address that opens the application; with a password it says nothing secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        start = f"{self.scheme}://{host}:{self.port}/"
        return start if self.password is not None else f"{start}?token={self.token}"

    def knows(self, token: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def issue_pass(self) -> str:
        """What a cookie holds: signed with the token, which cannot be read out of it."""
        body = f"{int(time.time())}.{secrets.token_urlsafe(12)}"
        return f"{body}.{self._sign(body)}"

    def accepts_pass(self, value: str) -> bool:
        """Whether a cookie was issued here, in the last days."""
        body, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(body).encode()):
            return False
        return time.time() - int(body.partition(".")[0]) < 86400 * _DAYS

    def _sign(self, body: str) -> str:
        key = f"vitrail cookie {self.port} {self.token}".encode()
        return hmac.new(key, body.encode(), hashlib.sha256).hexdigest()

    def accepts_password(self, word: str, address: str) -> bool:
        """Whether this is the password; whoever was wrong waits, each address for itself."""
        if self.password is None or not self.attempts.is_open(address):
            return False
        digests = (hashlib.sha256(text.encode()).digest() for text in (word, self.password))
        is_right = hmac.compare_digest(*digests)
        self.attempts.note(address, is_right)
        return is_right


class Guard:
    """ASGI middleware: refuses, or passes on and adds the headers of the content policy."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets
            return
        request = Request(scope, receive)
        answer = self._find_refusal(request) or await self._let_in(request)
        if answer is not None:
            answer.headers.update(HEADERS)
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, _add_headers(send))

    def _find_refusal(self, request: Request) -> Response | None:
        """The answer to a request of somebody else's page."""
        headers = request.headers
        if headers.get("host", "") not in self.access.names:
            return _refuse(421, "This address is not the one that the application listens at.")
        origin = headers.get("origin")
        if origin is not None and origin not in self.access.origins:
            return _refuse(403, "A page from elsewhere may not ask anything here.")
        if headers.get("sec-fetch-site", "none") in ("cross-site", "same-site"):
            # a link from elsewhere may open a page, which it cannot read
            is_visit = request.method == "GET" and headers.get("sec-fetch-mode") == "navigate"
            if not is_visit:
                return _refuse(403, "A page from elsewhere may not ask anything here.")
        if request.method not in ("GET", "HEAD", "POST"):
            return _refuse(405, "Only GET and POST are answered.")
        if request.method == "POST" and origin is None and not _read_bearer(request):
            return _refuse(403, "A request that changes something must say where it comes from.")
        return None

    async def _let_in(self, request: Request) -> Response | None:
        """None for who has the token; a cookie for who brings it; else the door."""
        access = self.access
        if access.accepts_pass(request.cookies.get(access.cookie, "")):
            return None
        if (bearer := _read_bearer(request)) and access.knows(bearer):
            return None
        if access.password is not None:
            return await self._ask_password(request)
        if access.knows(request.query_params.get("token", "")):
            rest = [(k, v) for k, v in request.query_params.multi_items() if k != "token"]
            where = request.url.path + (f"?{urlencode(rest)}" if rest else "")
            return self._set_cookie(RedirectResponse(where, 303))
        return _refuse(403, "Open the address that `vitrail serve` printed: it has the token.")

    async def _ask_password(self, request: Request) -> Response:
        if request.method == "POST" and request.url.path == "/login":
            body = b""
            async for chunk in request.stream():
                body += chunk
                if len(body) > 4096:
                    return _refuse(413, "This is too long for a password.")
            words = parse_qs(body.decode("utf-8", "replace")).get("password", [""])
            address = request.client.host if request.client else ""
            if self.access.accepts_password(words[0], address):
                return self._set_cookie(RedirectResponse("/", 303))
            return _refuse(403, "That is not the password. Wait a while and try again.", True)
        return _refuse(401, "This application asks for its password.", True)

    def _set_cookie(self, answer: Response) -> Response:
        access = self.access
        answer.set_cookie(
            access.cookie,
            access.issue_pass(),
            httponly=True,
            samesite="strict",
            secure=access.tls,
        )
        return answer


def _read_bearer(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.casefold() == "bearer" else ""


def _refuse(status: int, sentence: str, door: bool = False) -> Response:
    return Response(render_refusal(sentence, door), status, media_type="text/html")


def _add_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            known = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in known
                ),
            ]
        await send(message)

    return send_more
