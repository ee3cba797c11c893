"""The HTTP server's limits on connections: strangers who open many, or send slowly, cost nobody else.

uvicorn has a time limit for idle connections only. Here a request has to be whole in time, and of
the connections on which nothing is being answered some hundreds are kept: one more closes the one
that has been silent for longest. Those whose request is whole, long polls too, are left alone.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from laxity_scheduler.http.gate import READ_S

GRACE_S: Final = 3
# Headers, then the body, which the gate answers when it is late; then time to read that answer.
REQUEST_S: Final = 2 * READ_S
MAX_WAITING: Final = 256
MAX_HEAD_BYTES: Final = 64 * 1024

_Protocol: Any = AutoHTTPProtocol


class LimitedConnection(_Protocol):  # type: ignore[misc] # uvicorn chooses the parser
    """One connection. `waiting` is shared by all of a server, the longest silent first."""

    waiting: dict["LimitedConnection", None]

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._last_cycle: object = None  # the request that was whole last
        self._first_at: float | None = self.loop.time()  # of the request that is not whole yet
        self._got_bytes = 0
        self._schedule_check()
        self._mark_waiting()
        while len(self.waiting) > MAX_WAITING:
            longest = next(iter(self.waiting))
            del self.waiting[longest]
            longest.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._first_at is None:
            self._first_at, self._got_bytes = self.loop.time(), 0
        self._got_bytes += len(data)
        super().data_received(data)
        if self.cycle is self._last_cycle:  # the headers are not whole
            if self._got_bytes > MAX_HEAD_BYTES:
                self.transport.abort()
        elif not self.cycle.more_body:
            self._last_cycle, self._first_at = self.cycle, None
            if not self.cycle.response_complete:
                self.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._mark_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self._timer.cancel()
        super().connection_lost(exc)

    def _mark_waiting(self) -> None:
        """Nothing is being answered: from now on it may have to go for another one."""
        self.waiting.pop(self, None)
        if not self.transport.is_closing():
            self.waiting[self] = None

    def _schedule_check(self) -> None:
        self._timer = self.loop.call_later(REQUEST_S, self._check_time)

    def _check_time(self) -> None:
        if self._first_at is not None and self.loop.time() - self._first_at >= REQUEST_S:
            self.transport.abort()
        else:
            self._schedule_check()


class LimitedServer(uvicorn.Server):
    """Serves an app within the limits. `on_stop` is called before connections are waited for."""

    def __init__(self, app: Any, on_stop: Callable[[], None]) -> None:
        waiting: dict[LimitedConnection, None] = {}
        protocol = type("Connection", (LimitedConnection,), {"waiting": waiting})
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                log_config=None,  # its lines are in the form of all others
                log_level="warning",
                timeout_graceful_shutdown=GRACE_S,
                server_header=False,
            )
        )
        self._on_stop = on_stop
        self._error: Exception | None = None

    def end(self, error: Exception) -> None:
        """Stop as after a signal, then let `run` raise the error. From any thread."""
        self._error, self.should_exit = error, True

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets)
        if self._error is not None:
            raise self._error

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)
