"""The gate in front of the API: who calls is known before a byte of the body is read.

Three kinds of strangers are turned away: those who reach a loopback service under another name than
its own (a page that rebinds its name to this machine), pages of other origins that send a request
which changes something, and callers without a token. Of anybody else a body of 1 MiB is read, for
ten seconds at most. Who is turned away while he sends is read on for a moment, and nothing of it
kept: a connection that is closed on a sender takes the answer with it.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from laxity_scheduler.http.page_files import PAGE_PATHS
from laxity_scheduler.http.responses import Problem
from laxity_scheduler.http.sessions import Sessions
from laxity_scheduler.http.tokens import Tokens

MAX_BYTES: Final = 1024 * 1024
READ_S: Final = 10.0
LINGER_S: Final = 5.0
LINGER_BYTES: Final = 16 * MAX_BYTES
SESSION_PATH: Final = "/v1/session"
OPEN_PATHS: Final = frozenset(
    {"/", "/healthz", "/readyz", "/docs", "/openapi.json", SESSION_PATH, *PAGE_PATHS}
)
ACTION_HEADER: Final = "x-laxity-action"
ACTION_PATH: Final = re.compile(
    r"/v1/jobs/[^/]+/[^/]+(/accept|/amend)?|/v1/groups/[^/]+/[^/]+/(amend|end)"
)
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES: Final = frozenset({"", "same-origin", "none"})
_WHERE_TOKENS_ARE: Final = (
    "It stands in `tokens` and `service.json` of the service's home ($LAXITY_HOME, ~/.laxity), where "
    "its owner's commands find it, or in the secret that the service was given"
)
NO_TOKEN: Final = (
    "this service wants a token: set LAXITY_TOKEN, or send Authorization: Bearer TOKEN. "
    + _WHERE_TOKENS_ARE
)
WRONG_TOKEN: Final = (
    "this service does not know the token that was sent: set LAXITY_TOKEN to one that it knows, or "
    "unset it on the service's own machine. " + _WHERE_TOKENS_ARE
)


def stopping_problem() -> Problem:
    """The answer to a call that the end of the service cuts off."""
    return Problem(503, "stopping", "the service is being stopped; ask again")


class _GoneError(Exception):
    """The client closed the connection before its request was complete."""


class Gate:
    """Lets requests through whose sender and size are known; others get their answer here.

    `hosts` are the names by which the service may be called; none means any.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        hosts: Sequence[str] = (),
        sessions: Sessions | None = None,
    ) -> None:
        self._app, self._tokens, self._hosts = app, tokens, frozenset(hosts)
        self._sessions = sessions or Sessions(tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reader = _Reader(receive)
        try:
            self._check_origin(scope)
            if not self._identify_caller(scope):
                await self._app(scope, receive, send)  # which reads no body
                return
            body = await _read_body(scope, reader)
        except Problem as refused:
            await _turn_away(refused, scope, reader, send)
        except _GoneError:
            return
        else:
            await self._run_request(scope, _replay_body(body, receive), send)

    async def _run_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request; one that the server cancels as it stops is answered in words."""
        began = False

        async def send_noting(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except asyncio.CancelledError:
            if began:
                raise
            await stopping_problem().to_response()(scope, receive, send)

    def _check_origin(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts and _host_name(host) not in self._hosts:
            message = (
                f"this service is called {' or '.join(sorted(self._hosts))}, not {host[:80]!r}"
            )
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid_host", message)
        if scope["method"] in SAFE_METHODS:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "")
        is_foreign = origin is not None and _origin_host(origin) != host.lower()
        if is_foreign or site not in OWN_SITES:
            message = f"a page of {(origin or site)[:80]!r} may not change anything here"
            raise Problem(HTTPStatus.FORBIDDEN, "foreign_origin", message)

    def _identify_caller(self, scope: Scope) -> bool:
        """Note in the request's state who sends it; whether it is somebody that we know.

        Problem if it is nobody and the path is not open to all.
        """
        headers = Headers(scope=scope)
        sent = headers.get("authorization", "")
        caller = self._tokens.caller_of(sent)
        if not sent and (scope["method"] in SAFE_METHODS or _is_action(scope, headers)):
            caller = self._sessions.caller_of(headers.get("cookie", ""))
        scope.setdefault("state", {})["caller"] = caller
        if caller is None and scope["path"] not in OPEN_PATHS:
            raise Problem(
                HTTPStatus.UNAUTHORIZED, "unauthorized", WRONG_TOKEN if sent else NO_TOKEN
            )
        return caller is not None


def _is_action(scope: Scope, headers: Headers) -> bool:
    """Whether the page asks for what a person confirmed there; else a cookie opens reading only.

    No other site can send the header: the browser would ask first, and the service allows nobody.
    """
    return ACTION_HEADER in headers and bool(ACTION_PATH.fullmatch(scope["path"]))


class _Reader:
    """The body of a request, piece by piece; `more` while some of it is to come."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.more = True

    async def read_chunk(self) -> bytes:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        self.more = bool(message.get("more_body"))
        return bytes(message.get("body", b""))


async def _read_body(scope: Scope, reader: _Reader) -> bytes:
    """The whole body; Problem if it is too long or takes too long."""
    too_long = Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_long", f"a body has at most {MAX_BYTES} bytes"
    )
    length = Headers(scope=scope).get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > 19 or int(length) > MAX_BYTES:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(READ_S):
            while reader.more:
                body += await reader.read_chunk()
                if len(body) > MAX_BYTES:
                    raise too_long
    except TimeoutError:
        late = f"the request was not whole within {READ_S:.0f} s"
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, "too_slow", late) from None
    return bytes(body)


async def _turn_away(refused: Problem, scope: Scope, reader: _Reader, send: Send) -> None:
    """Answer at once, then read on within limits, so that a sender gets to see the answer."""

    async def send_incomplete(message: Message) -> None:
        await send({**message, "more_body": True} if "body" in message else message)

    await refused.to_response()(scope, reader.receive, send_incomplete)
    dropped = 0
    with suppress(TimeoutError, _GoneError):
        async with asyncio.timeout(LINGER_S):
            while reader.more and dropped < LINGER_BYTES:
                dropped += len(await reader.read_chunk())
    await send({"type": "http.response.body", "body": b""})


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """A body that was read, as the app asks for it; after it, whether the client is still there."""
    sent = False

    async def receive_replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_replayed


def _origin_host(origin: str) -> str:
    """Host and port of an Origin header, as a Host header has them; "" for none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _host_name(host: str) -> str:
    """The name in a Host header: without its port, an IPv6 address without its brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
