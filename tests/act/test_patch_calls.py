"""Patches over kept connections: what a server may do in between, and what becomes of an answer."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from laxity.backoff import Backoff
from laxity_k8s.cluster_api import ApiError
from laxity_k8s.http import session
from laxity_k8s.http.session import Wire
from laxity_k8s.live_cluster import LiveCluster
from laxity_scheduler.model.decision import Admit, Promised, Wait
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.model.verdict import Promise
from laxity_scheduler.plan import Plan
from tests.support.builders import promised
from tests.support.watched_server import next_of


def echo(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


PLAIN = echo(b"ok")


class RawServer:
    """It counts connections and answers each request as `answers` say, then with its body.

    An answer that ends in "!" is the last of its connection.
    """

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.requests, self.connections = list(answers), list[bytes](), 0
        self.arrived = asyncio.Queue[None]()
        self.ended = asyncio.Queue[None]()
        self.talks = set[asyncio.Task[Any]]()
        self.gate = asyncio.Event()
        self.gate.set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.talks.update(filter(None, [asyncio.current_task()]))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._answer_next(reader, writer):
                pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.ended.put_nowait(None)

    async def _answer_next(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(size)
        self.requests.append(head + body)
        self.arrived.put_nowait(None)
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else echo(body)
        writer.write(answer.removesuffix(b"!"))
        await writer.drain()
        return not answer.endswith(b"!")


async def _nobody() -> Mapping[str, str]:
    return {}


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[RawServer, Wire]]:
    server = RawServer(*answers)
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        async with Wire(f"http://127.0.0.1:{port}/base/", None, _nobody) as wire:
            yield server, wire
    finally:
        server.gate.set()
        await asyncio.gather(*server.talks)
        listening.close()
        await listening.wait_closed()


async def patch(wire: Wire, number: int = 0, **options: Any) -> bytes:
    """One attempt, unless `attempts` says more."""
    said = {"attempts": 1, "query": {"b": "c"}, "body": {"number": number}, **options}
    return await wire.call_bytes("PATCH", "/a", **said)


def body_of(number: int) -> bytes:
    return b'{"number":%d}' % number


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "BACKOFF", Backoff(first_s=0.0, longest_s=0.0, spread=0.0))


@pytest.mark.asyncio
async def test_one_connection_serves_patch_after_patch_with_path_headers_and_body() -> None:
    async with serving() as (server, wire):
        answers = [await patch(wire, number) for number in range(5)]
    assert answers == [body_of(number) for number in range(5)]
    assert server.connections == 1
    assert server.requests[3].startswith(b"PATCH /base/a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAccept: application/json\r\n" in server.requests[3]
    assert server.requests[3].endswith(b"\r\n\r\n" + body_of(3))


@pytest.mark.asyncio
async def test_a_token_that_rotates_is_sent_from_then_on() -> None:
    async with serving() as (server, wire):
        for token in ("old", "old", "new"):

            async def authorize(token: str = token) -> Mapping[str, str]:
                return {"Authorization": f"Bearer {token}"}

            wire._authorize = authorize
            await patch(wire)
    sent = [request.split(b"Bearer ")[1].split(b"\r\n")[0] for request in server.requests]
    assert sent == [b"old", b"old", b"new"]


@pytest.mark.asyncio
async def test_a_header_cannot_smuggle_in_another() -> None:
    async def authorize() -> Mapping[str, str]:
        return {"Authorization": "a\r\nX: y"}

    async with serving() as (server, wire):
        wire._authorize = authorize
        with pytest.raises(ValueError, match="injection"):
            await patch(wire)
        assert not server.requests


@pytest.mark.asyncio
async def test_patches_in_flight_have_a_connection_each_and_get_their_own_answers() -> None:
    async with serving() as (server, wire):
        server.gate.clear()
        sent = [asyncio.create_task(patch(wire, number)) for number in range(4)]
        for _ in sent:
            await next_of(server.arrived)
        server.gate.set()
        answers = await asyncio.gather(*sent)
        await asyncio.gather(*[patch(wire) for _ in range(4)])
    assert answers == [body_of(number) for number in range(4)]
    assert server.connections == 4


CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
ANSWERS = [
    pytest.param(CHUNKED, b'{"a":1}', id="in chunks"),
    pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, b"ok", id="after a word in between"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx!",
        b"x",
        id="the last one of a connection",
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("answer", "read"), ANSWERS)
async def test_an_answer_is_read_as_it_was_meant_and_so_is_the_next(
    answer: bytes, read: bytes
) -> None:
    async with serving(answer) as (_, wire):
        assert await patch(wire) == read
        assert await patch(wire, 1) == body_of(1)


CUT = [
    pytest.param(b"!", id="instead of an answer"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf!", id="in the middle of one"),
    pytest.param(b"no HTTP at all\r\n\r\n", id="nonsense"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", CUT)
async def test_a_patch_whose_connection_breaks_is_sent_once_by_each_attempt(
    answer: bytes, impatient: None
) -> None:
    async with serving(PLAIN, answer, answer) as (server, wire):
        await patch(wire)  # the connection is one that was kept
        with pytest.raises(ApiError, match="the API server does not answer") as refused:
            await patch(wire, 1)
        assert refused.value.status == 0
        assert len(server.requests) == 2
        assert await patch(wire, 2, attempts=2) == body_of(2)
        assert [request.rpartition(b"\r\n")[2] for request in server.requests] == [
            body_of(number) for number in (0, 1, 2, 2)
        ]
        assert server.connections == 3


@pytest.mark.asyncio
async def test_a_patch_that_one_may_no_longer_send_is_not_repeated(impatient: None) -> None:
    may = [True]
    async with serving(b"!") as (server, wire):
        server.gate.clear()
        sent = asyncio.create_task(patch(wire, attempts=6, allowed=lambda: may[0]))
        await next_of(server.arrived)
        may[0] = False
        server.gate.set()
        with pytest.raises(ApiError):
            await sent
        assert len(server.requests) == 1


@pytest.mark.asyncio
async def test_a_busy_server_is_asked_again_after_as_long_as_it_says(
    monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)

    busy = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    async with serving(busy) as (server, wire):
        with monkeypatch.context() as patched:
            patched.setattr("laxity_k8s.http.session.asyncio.sleep", sleep)
            assert await patch(wire, attempts=2) == body_of(0)
        assert waits == [7.0]
        assert (len(server.requests), server.connections) == (2, 1)


@pytest.mark.asyncio
async def test_a_patch_is_not_sent_elsewhere() -> None:
    moved = b"HTTP/1.1 307 Go\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    async with serving(moved) as (server, wire):
        with pytest.raises(ApiError, match=r"PATCH /a: 307"):
            await patch(wire)
        assert len(server.requests) == 1


@pytest.mark.asyncio
async def test_an_answer_that_came_too_late_is_never_taken_for_the_next_one() -> None:
    async with serving() as (server, wire):
        server.gate.clear()
        with pytest.raises(ApiError, match="no answer in time"):
            await patch(wire, timeout_s=0.05)
        server.gate.set()
        assert await patch(wire, 1) == body_of(1)
        assert server.connections == 2


@pytest.mark.asyncio
async def test_a_connection_that_the_server_closed_meanwhile_is_left_alone() -> None:
    async with serving(PLAIN + b"!") as (server, wire):
        await patch(wire)
        await next_of(server.ended)
        assert await patch(wire, 1) == body_of(1)
        assert (len(server.requests), server.connections) == (2, 2)


@pytest.mark.asyncio
async def test_whoever_waits_when_the_wire_is_closed_is_told_and_no_connection_is_left() -> None:
    async with serving() as (server, wire):
        server.gate.clear()
        waiting = asyncio.create_task(patch(wire))
        await next_of(server.arrived)
        await wire.__aexit__()
        with pytest.raises(ApiError, match="does not answer"):
            await waiting
        server.gate.set()
        await next_of(server.ended)


def test_as_many_patches_are_announced_as_jobs_have_news() -> None:
    announced: list[int] = []
    world: Any = SimpleNamespace(api=SimpleNamespace(expect=announced.append))
    why = reason("order", policy="test")
    waits = [Wait(f"team/{number}", why) for number in range(50)]
    acts = [Admit(f"team/{number}", 1, ("n0",), why) for number in range(3)]
    promise = promised("0", 60.0).verdict
    assert isinstance(promise, Promise)
    LiveCluster.expect(world, Plan((*waits, *acts, Promised("team/0", promise, why))))
    assert announced == [3]
