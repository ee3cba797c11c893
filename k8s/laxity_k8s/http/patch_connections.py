"""Small requests over kept connections, with little work for each: how thousands of patches go out.

While a cycle acts, the API server's work is what counts, and where it shares its cores with the
service each millisecond spent here is taken from it. An aiohttp session spends 0.25 ms of CPU on a
patch, this half of it (`docs/measurements/speed.md`). HTTP is parsed by httptools, TLS is uvloop's. Lists and
watches stay with aiohttp, which also unpacks what is compressed.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

CLOSED: Final = "the API server closed the connection"
RETRY_AFTER: Final = b"retry-after"


@dataclass(slots=True)
class Reply:
    """An answer as it comes in."""

    status: int = 0
    retry_after: str = ""
    parts: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


class Line(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[Reply] | None = None
        self._reply = Reply()
        self._parser = HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # for a stream it is one

    @property
    def free(self) -> bool:
        """Whether a request may be sent: nothing is under way and the server has not hung up."""
        return self._answer is None and not self._transport.is_closing()

    async def ask(self, request: bytes, until: float) -> Reply:
        """ConnectionError if the connection ends before the answer does, TimeoutError if it is late.

        `until` is the loop's time. A timer is half as dear as a timeout around the task.
        """
        self._reply = Reply()
        self._parser = HttpResponseParser(self)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reply] = loop.create_future()
        self._answer = answer
        late = loop.call_at(until, self._fail_with, TimeoutError("no answer in time"))
        self._transport.write(request)
        try:
            return await answer
        finally:  # an answer that nobody waits for any more must not be taken for the next one's
            late.cancel()
            if not answer.done() or answer.cancelled() or answer.exception() is not None:
                self.hang_up()

    def hang_up(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.hang_up()  # nobody has asked: a server that says goodbye, or is confused
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail_with(ConnectionError(f"not HTTP: {error}"))
            self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_with(ConnectionError(CLOSED if exc is None else f"{CLOSED}: {exc}"))
        if not self.lost.done():
            self.lost.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: a header of the answer."""
        if name.lower() == RETRY_AFTER:
            self._reply.retry_after = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of the body."""
        self._reply.parts.append(body)

    def on_message_complete(self) -> None:
        """httptools: the answer is whole. One that only informs (1xx) is not yet the answer."""
        self._reply.status = self._parser.get_status_code()
        if self._reply.status < 200:
            self._reply = Reply()
            return
        answer, self._answer = self._answer, None
        if not self._parser.should_keep_alive():
            self._transport.close()
        if answer is not None and not answer.done():
            answer.set_result(self._reply)

    def _fail_with(self, why: OSError) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(why)


class Resuming:
    """TLS as an event loop asks for it, each connection going on from the session of an earlier one.

    That spares the API server three quarters of what it costs it to take up 32 at once. A server
    that does not know the session any more begins a new one.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._session: ssl.SSLSession | None = None

    def after(self, transport: asyncio.BaseTransport) -> None:
        """A connection of the same context that has been answered: tickets come before answers."""
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None and tls.session is not None and tls.session.has_ticket:
            self._session = tls.session

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **said: Any
    ) -> ssl.SSLObject:
        """As ssl.SSLContext.wrap_bio."""
        return self._tls.wrap_bio(incoming, outgoing, session=self._session, **said)


class PatchConnections:
    """As many connections to one server as requests are in flight; each is used again."""

    def __init__(self, host: str, tls: ssl.SSLContext | None) -> None:
        url = urlsplit(host)
        self._host, self._port = url.hostname or "", url.port or (443 if tls else 80)
        self._authority, self._prefix = url.netloc, url.path.rstrip("/")
        self._tls: Any = Resuming(tls) if tls is not None else None  # the loop wants its wrap_bio
        self._headers: dict[str, str] | None = None
        self._said = ""
        self._lines: set[Line] = set()
        self._free: list[Line] = []
        self._coming: deque[asyncio.Task[Line]] = deque()

    def expect(self, requests: int) -> None:
        """So many are about to come, at once: begin to open what connections they lack.

        Returns at once; a request takes one of these as soon as it is open.
        """
        self._free = [line for line in self._free if line.free]
        for _ in range(requests - len(self._free) - len(self._coming)):
            coming = asyncio.create_task(self._open_line())
            coming.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._coming.append(coming)

    def resume(self, transport: asyncio.BaseTransport | None) -> None:
        """New connections go on from the session of this one, made with the same TLS settings."""
        if self._tls is not None and transport is not None:
            self._tls.after(transport)

    async def ask(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
    ) -> Reply:
        """OSError (ConnectionError, ssl.SSLError) or TimeoutError if there is no answer.

        `target` is path and query. What was on its way may have arrived all the same.
        """
        start = f"{method} {self._prefix}{_one_line(target)} HTTP/1.1\r\n"
        head = f"{start}{self._common_headers(headers)}Content-Length: {len(body)}\r\n\r\n"
        until = asyncio.get_running_loop().time() + timeout_s
        line = self._last_used()
        if line is None:
            async with asyncio.timeout_at(until):
                line = await self._next_line()
        reply = await line.ask(head.encode("latin-1") + body, until)
        self._free.append(line)
        return reply

    async def close(self) -> None:
        """Hang up; returns when every connection is gone."""
        self._free.clear()
        for coming in self._coming:
            coming.cancel()
        await asyncio.gather(*self._coming, return_exceptions=True)
        self._coming.clear()
        for line in self._lines:
            line.hang_up()
        await asyncio.gather(*[line.lost for line in self._lines])

    def _common_headers(self, headers: Mapping[str, str]) -> str:
        """The headers as text: made once for the thousands of requests that have the same."""
        if headers != self._headers:
            headers_text = "".join(
                f"{name}: {_one_line(value)}\r\n" for name, value in headers.items()
            )
            self._headers, self._said = dict(headers), f"Host: {self._authority}\r\n{headers_text}"
        return self._said

    def _last_used(self) -> Line | None:
        """The connection used last, so that those not needed any more are left to the server."""
        while self._free:
            line = self._free.pop()
            if line.free:
                return line
        return None

    async def _next_line(self) -> Line:
        """A connection that is being opened already, or another one."""
        while self._coming:
            coming = self._coming.popleft()
            if coming.done() and (coming.cancelled() or coming.exception()):
                continue  # why that one could not be opened is no news any more
            line = await coming
            if line.free:
                return line
        return await self._open_line()

    async def _open_line(self) -> Line:
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(Line, self._host, self._port, ssl=self._tls)
        self._lines.add(line)
        line.lost.add_done_callback(lambda _: self._lines.discard(line))
        return line


def _one_line(text: str) -> str:
    """ValueError if it would be more than a line: a header must not smuggle in another."""
    if "\r" in text or "\n" in text:
        raise ValueError("a line break in a request's head")
    return text
