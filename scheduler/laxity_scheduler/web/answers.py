"""Answers and errors as HTTP has them: JSON with a code for machines and a sentence for people."""

from typing import Any, Final

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES: Final = 1024 * 1024
MOST_READ_AWAY_BYTES: Final = 64 * 1024 * 1024


class Problem(Exception):  # noqa: N818 - what goes wrong is the caller's, not the program's
    """An answer that is an error: for machines a code, for people a sentence."""

    def __init__(self, status: int, code: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field


class Answer(Response):
    """JSON; infinity and NaN, which JSON does not have, become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


class BodyLimit:
    """Turns bodies away that are longer than 1 MiB, said or sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > MOST_BYTES:
            await _read_away(receive)
            await _too_long()(scope, receive, send)
            return
        got = 0

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > MOST_BYTES:
                raise Problem(413, "too_long", f"a body has at most {MOST_BYTES} bytes")
            return message

        await self._app(scope, counted, send)


async def _read_away(receive: Receive) -> None:
    """Read what is being sent, within reason: a client that is cut off never sees the answer."""
    got, more = 0, True
    while more and got < MOST_READ_AWAY_BYTES:
        message = await receive()
        got += len(message.get("body", b""))
        more = message["type"] == "http.request" and bool(message.get("more_body"))


def _too_long() -> Response:
    return problem(413, "too_long", f"a body has at most {MOST_BYTES} bytes")


def problem(status: int, code: str, message: str, field: str = "") -> Response:
    """{"error": {"code", "message", "field"?}}."""
    error = {"code": code, "message": message} | ({"field": field} if field else {})
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Answer({"error": error}, status_code=status, headers=headers)
