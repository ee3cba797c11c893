"""JSON to and from an API server over one aiohttp session: retries, limits, words for errors.

The client library's TLS settings and credentials, without its models: a typed LIST of 5,000 Jobs
takes five seconds, this a tenth of one.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final, Self
from weakref import WeakSet

import aiohttp
import orjson

from laxity.backoff import Backoff
from laxity_k8s.cluster_api import NOT_ALLOWED, ApiError, Json
from laxity_scheduler.service_clock import CLOCK

# To all that is patched here the same as a merge patch (no list is merged by keys, null takes away),
# and an eighth cheaper to the server.
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
# What is sent is made here from known fields: looking for unknown ones costs the server a sixth.
FIELD_MANAGER: Final = {"fieldManager": "laxity", "fieldValidation": "Ignore"}
RETRIED: Final = frozenset({429, 500, 502, 503, 504})
CLOSE_S: Final = 5.0
# A peer that is gone without a word is noticed after 40 s, also where nothing is sent (a watch).
KEEPALIVE: Final = {socket.TCP_KEEPIDLE: 20, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4}
CLOSE_LOOK_S: Final = 0.002
ATTEMPTS: Final = 6  # of a call, in all
BACKOFF: Final = Backoff(first_s=0.15, longest_s=5.0, spread=0.5)
Authorize = Callable[[], Awaitable[Mapping[str, str]]]
Allowed = Callable[[], bool]


class ApiSession:
    """One session to one API server. Made and used on one event loop."""

    def __init__(self, host: str, tls: ssl.SSLContext | None, authorize: Authorize) -> None:
        self._host = host.rstrip("/")
        self._authorize = authorize
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._connector = aiohttp.TCPConnector(
            limit=0, ssl=tls if tls is not None else True, socket_factory=self._make_socket
        )
        self._session = aiohttp.ClientSession(connector=self._connector)

    @property
    def session(self) -> aiohttp.ClientSession:
        """For calls that want none of the retries below; paths begin with `host`."""
        return self._session

    @property
    def host(self) -> str:
        return self._host

    async def auth_headers(self) -> Mapping[str, str]:
        """The headers that say who calls."""
        return await self._authorize()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Returns when every connection is gone, those too that are still saying goodbye in TLS.

        The connector forgets a connection as soon as it starts to close; its loop must outlive it.
        """
        await self._connector.close(abort_ssl=True)
        await self._session.close()
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for _look in range(round(CLOSE_S / CLOSE_LOOK_S)):
            if all(sock.fileno() < 0 for sock in self._sockets):
                return
            await asyncio.sleep(CLOSE_LOOK_S)

    def _make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket as the connector would make it, kept alive, known until it is closed."""
        family, kind, protocol = address[:3]
        made = socket.socket(family=family, type=kind, proto=protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, number in KEEPALIVE.items():
            made.setsockopt(socket.IPPROTO_TCP, option, number)
        self._sockets.add(made)
        return made

    async def call_json(self, method: str, path: str, **options: Any) -> Json:
        """As `call_bytes`, the answer read."""
        answer: Json = orjson.loads(await self.call_bytes(method, path, **options))
        return answer

    async def call_bytes(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout_s: float = 30.0,
        attempts: int = ATTEMPTS,
        allowed: Allowed = lambda: True,
    ) -> bytes:
        """One call; what may be repeated is repeated. ApiError says the status and the message.

        A POST is not repeated once it may have arrived. `allowed` is asked before each attempt: a
        process may sleep for long between two of them.
        """
        sent = encode_body(body, f"{method} {path}") if body is not None else None
        attempt = 0
        while True:
            if not allowed():
                raise ApiError(f"{method} {path} {NOT_ALLOWED}")
            status, answer, wait_s = await self._send_once(
                method, path, query=query, sent=sent, content_type=content_type, timeout_s=timeout_s
            )
            if 0 < status < 300:
                return answer
            attempt += 1
            lost = status == 0 and method == "POST"
            may_retry = status in RETRIED or (status == 0 and not lost)
            if not may_retry or attempt >= attempts:
                raise ApiError(_error_message(method, path, status, answer), status=status)
            await asyncio.sleep(max(wait_s, BACKOFF.delay_s(attempt)))

    async def _send_once(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        sent: bytes | None,
        content_type: str,
        timeout_s: float,
    ) -> tuple[int, bytes, float]:
        """Status (0: no answer), body and the wait that the server asked for."""
        headers = {**await self._authorize(), "Accept": "application/json"}
        if sent is not None:
            headers["Content-Type"] = content_type
        sent_at = time.time()
        try:
            async with self._session.request(
                method,
                self._host + path,
                params=query,
                data=sent,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as reply:
                _compare_clocks(reply.headers.get("Date", ""), sent_at)
                again = reply.headers.get("Retry-After", "")
                return reply.status, await reply.read(), _retry_after_s(again)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return 0, f"{type(error).__name__}: {error}".encode(), 0.0

    async def try_create(self, path: str, body: Mapping[str, Any]) -> list[str]:
        """Create for show (a dry run stores nothing); the API server's warnings. ApiError if refused."""
        try:
            async with self._session.post(
                self._host + path,
                params={**FIELD_MANAGER, "dryRun": "All"},
                data=encode_body(body, f"POST {path}"),
                headers={**await self._authorize(), "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=30.0),
            ) as reply:
                status, text = reply.status, await reply.read()
                warnings = reply.headers.getall("Warning", [])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            status, text, warnings = 0, str(error).encode(), []
        if not 0 < status < 300:
            raise ApiError(_error_message("POST", path, status, text), status=status)
        return [read_warning(warning) for warning in warnings]

    async def open_stream(
        self, path: str, query: Mapping[str, str], *, silence_s: float
    ) -> aiohttp.ClientResponse:
        """An open watch; its lines are JSON. The caller closes it. ApiError if it is refused."""
        try:
            reply = await self._session.get(
                self._host + path,
                params=query,
                headers=await self._authorize(),
                timeout=aiohttp.ClientTimeout(total=None, sock_read=silence_s),
                read_bufsize=2**20,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(f"watch {path}: {error}") from error
        if reply.status != 200:
            text = await reply.read()
            reply.release()
            raise ApiError(_error_message("WATCH", path, reply.status, text), status=reply.status)
        return reply


def read_warning(header: str) -> str:
    """The words of a Warning header (RFC 7234): 299 - "words"."""
    words = header.partition('"')[2].rpartition('"')[0]
    return words.replace('\\"', '"').replace("\\\\", "\\")


def encode_body(body: Mapping[str, Any], what: str) -> bytes:
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:  # as a server would have answered
        raise ApiError(f"{what}: no JSON: {error}", status=422) from error


def _compare_clocks(date: str, sent_at: float) -> None:
    """Take note of what the API server's clock showed as it answered."""
    with suppress(ValueError):
        CLOCK.compare(parsedate_to_datetime(date).timestamp(), sent_at, time.time())


def _retry_after_s(said: str) -> float:
    try:
        return min(30.0, float(said or "0"))
    except ValueError:
        return 0.0


def _error_message(method: str, path: str, status: int, text: bytes) -> str:
    """The server's own message where it gives one."""
    try:
        message = orjson.loads(text).get("message", "")
    except (orjson.JSONDecodeError, AttributeError):
        message = text.decode(errors="replace")[:300]
    if status == 0:
        return f"the API server does not answer ({method} {path}): {message}"
    return f"{method} {path}: {status} {message}"
