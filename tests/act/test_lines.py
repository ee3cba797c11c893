"""Requests over kept connections: what a server may do in between, and what becomes of an answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from laxity_k8s.http.patch_connections import PatchConnections, Reply
from laxity_k8s.http.session import EARLY, Wire
from laxity_k8s.live_cluster import LiveCluster
from laxity_scheduler.model.decision import Admit, Promised, Wait
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.model.verdict import Promise
from laxity_scheduler.plan import Plan
from tests.support.builders import promised


def echo(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


PLAIN = echo(b"ok")


class Server:
    """A server that counts its connections and answers each request with what `says` tells it to."""

    def __init__(self, *says: bytes) -> None:
        self.says, self.requests, self.connections = list(says), list[bytes](), 0
        self.arrived = asyncio.Queue[None]()
        self.gate = asyncio.Event()
        self.gate.set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(size)
                self.requests.append(head + body)
                self.arrived.put_nowait(None)
                await self.gate.wait()
                said = self.says.pop(0) if self.says else echo(body)
                writer.write(said.removesuffix(b"!"))
                await writer.drain()
                if said.endswith(b"!"):  # and hangs up
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def served(*says: bytes) -> AsyncIterator[tuple[Server, PatchConnections]]:
    server = Server(*says)
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    lines = PatchConnections(f"http://127.0.0.1:{port}/base/", None)
    try:
        yield server, lines
    finally:
        await lines.close()
        listening.close()
        await listening.wait_closed()


async def ask(lines: PatchConnections, body: bytes = b"ok", *, timeout_s: float = 60.0) -> Reply:
    headers = {"Accept": "application/json"}
    return await lines.ask("PATCH", "/a?b=c", headers=headers, body=body, timeout_s=timeout_s)


@pytest.mark.asyncio
async def test_one_connection_serves_request_after_request_with_path_headers_and_body() -> None:
    async with served() as (server, lines):
        replies = [await ask(lines, f"{number}".encode()) for number in range(5)]
    assert [reply.status for reply in replies] == [200] * 5
    assert [reply.body for reply in replies] == [b"0", b"1", b"2", b"3", b"4"]
    assert server.connections == 1
    assert server.requests[3].startswith(b"PATCH /base/a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAccept: application/json\r\n" in server.requests[3]
    assert server.requests[3].endswith(b"\r\n\r\n3")


@pytest.mark.asyncio
async def test_a_token_that_rotates_is_sent_from_then_on() -> None:
    async with served() as (server, lines):
        for token in ("old", "old", "new"):
            headers = {"Authorization": f"Bearer {token}"}
            await lines.ask("PATCH", "/", headers=headers, body=b"", timeout_s=60.0)
    sent = [request.split(b"Bearer ")[1].split(b"\r\n")[0] for request in server.requests]
    assert sent == [b"old", b"old", b"new"]


@pytest.mark.asyncio
async def test_requests_in_flight_have_a_connection_each_and_get_their_own_answers() -> None:
    async with served() as (server, lines):
        server.gate.clear()
        asked = [asyncio.create_task(ask(lines, f"{number}".encode())) for number in range(4)]
        for _ in asked:
            await server.arrived.get()
        server.gate.set()
        answers = await asyncio.gather(*asked)
        await asyncio.gather(*[ask(lines) for _ in range(4)])
    assert [reply.body for reply in answers] == [b"0", b"1", b"2", b"3"]
    assert server.connections == 4


@pytest.mark.asyncio
async def test_connections_are_opened_before_the_requests_that_are_expected_come() -> None:
    async with served() as (server, lines):
        lines.expect(3)
        lines.expect(2)  # three are on their way already
        await asyncio.wait([*lines._coming])
        assert not server.requests
        assert len(lines._lines) == 3
        server.gate.clear()
        asked = [asyncio.create_task(ask(lines, f"{number}".encode())) for number in range(4)]
        for _ in asked:
            await server.arrived.get()
        server.gate.set()
        assert [reply.body for reply in await asyncio.gather(*asked)] == [b"0", b"1", b"2", b"3"]
        lines.expect(4)  # all are there
        assert not lines._coming
        assert server.connections == 4


def noting(seen: list[tuple[int, bool]]) -> Callable[..., None]:
    def expect(patches: int, *, decided: bool = True) -> None:
        seen.append((patches, decided))

    return expect


def test_as_many_patches_are_expected_as_jobs_have_news() -> None:
    seen: list[tuple[int, bool]] = []
    api = SimpleNamespace(expect=noting(seen))
    why = reason("order", policy="test")
    waits = [Wait(f"team/{number}", why) for number in range(50)]
    acts = [Admit(f"team/{number}", 1, ("n0",), why) for number in range(3)]
    promise = promised("0", 60.0).verdict
    assert isinstance(promise, Promise)
    told = [Promised("team/0", promise, why)]
    LiveCluster.expect(SimpleNamespace(api=api), Plan((*waits, *acts, *told)))  # type: ignore[arg-type]
    assert seen == [(3, True)]


def test_as_many_patches_are_expected_as_jobs_ask_for_a_verdict_and_none_where_none_does() -> None:
    seen: list[tuple[int, bool]] = []
    world: Any = SimpleNamespace(api=SimpleNamespace(expect=noting(seen)))
    for jobs in (0, 5):
        LiveCluster.expect_answers(world, jobs)
    assert seen == [(5, False)]


@pytest.mark.asyncio
async def test_few_connections_open_while_patches_are_decided_on_and_all_when_they_are() -> None:
    async with served() as (_, lines):
        wire: Any = SimpleNamespace(_lines=lines, awaited=0)
        Wire.expect(wire, 1000, in_flight=12, decided=False)
        assert (len(lines._coming), wire.awaited) == (EARLY, 1000)
        Wire.expect(wire, 900, in_flight=12)
        assert (len(lines._coming), wire.awaited) == (12, 900)
        await asyncio.wait([*lines._coming])
        assert len(lines._lines) == 12


@pytest.mark.asyncio
async def test_a_server_that_was_away_when_requests_were_expected_is_asked_when_they_come() -> None:
    async with served() as (server, lines):
        port, lines._port = lines._port, 1  # where nobody listens
        lines.expect(2)
        await asyncio.wait([*lines._coming])
        with pytest.raises(ConnectionError):
            await ask(lines)
        lines._port = port
        lines.expect(2)
        assert (await ask(lines)).body == b"ok"
        assert server.connections <= 2


@pytest.mark.asyncio
async def test_connections_that_the_server_closed_meanwhile_are_no_longer_counted_on() -> None:
    async with served(PLAIN + b"!") as (server, lines):
        await ask(lines)
        await lines._free[0].lost
        lines.expect(1)
        await asyncio.wait([*lines._coming])
        assert (await ask(lines)).body == b"ok"
        assert server.connections == 2


@pytest.mark.asyncio
async def test_closing_gives_up_connections_that_are_still_being_opened() -> None:
    async with served() as (_, lines):
        lines.expect(3)
        await lines.close()
        assert not lines._coming
        assert not lines._lines


@pytest.mark.asyncio
async def test_a_connection_opened_early_that_the_server_closed_meanwhile_is_left_alone() -> None:
    async with served() as (server, lines):
        lines.expect(1)
        (await lines._coming[0]).hang_up()
        await lines._coming[0].result().lost
        assert (await ask(lines)).body == b"ok"
        assert len(server.requests) == 1


CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
INFORMED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
ANSWERS = [
    pytest.param(CHUNKED, (200, b'{"a":1}', ""), id="in chunks"),
    pytest.param(INFORMED, (200, b"ok", ""), id="after a word in between"),
    pytest.param(BUSY, (429, b"", "7"), id="come again later"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx!",
        (200, b"x", ""),
        id="the last one of a connection",
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("said", "heard"), ANSWERS)
async def test_an_answer_is_read_as_it_was_meant_and_so_is_the_next(
    said: bytes, heard: tuple[int, bytes, str]
) -> None:
    async with served(said) as (_, lines):
        reply = await ask(lines)
        assert (reply.status, reply.body, reply.retry_after) == heard
        assert (await ask(lines)).body == b"ok"


CUT = [
    pytest.param(b"!", id="instead of an answer"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf!", id="in the middle of one"),
    pytest.param(b"no HTTP at all\r\n\r\n", id="nonsense"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("said", CUT)
async def test_a_connection_that_breaks_is_an_error_and_is_not_used_again(said: bytes) -> None:
    async with served(said) as (server, lines):
        with pytest.raises(ConnectionError):
            await ask(lines)
        assert (await ask(lines)).body == b"ok"
        assert server.connections == 2


@pytest.mark.asyncio
async def test_an_answer_that_came_too_late_is_never_taken_for_the_next_one() -> None:
    async with served() as (server, lines):
        await ask(lines)  # the connection is open: none of the time goes into that
        server.gate.clear()
        with pytest.raises(TimeoutError):
            await ask(lines, b"old", timeout_s=0.05)
        server.gate.set()
        assert (await ask(lines, b"new")).body == b"new"
        assert server.connections == 2
        assert len(lines._lines) == 1  # the other one was hung up


@pytest.mark.asyncio
async def test_a_connection_that_the_server_closed_meanwhile_is_left_alone() -> None:
    async with served(PLAIN + b"!") as (server, lines):
        await ask(lines)
        await lines._free[0].lost
        assert (await ask(lines)).body == b"ok"
        assert server.connections == 2


@pytest.mark.asyncio
async def test_a_header_cannot_smuggle_in_another() -> None:
    async with served() as (server, lines):
        with pytest.raises(ValueError, match="line break"):
            await lines.ask(
                "PATCH", "/", headers={"Authorization": "a\r\nX: y"}, body=b"", timeout_s=1.0
            )
        assert not server.requests


@pytest.mark.asyncio
async def test_a_closed_set_of_lines_has_no_connection_left_and_whoever_waits_is_told() -> None:
    async with served() as (server, lines):
        server.gate.clear()
        waiting = asyncio.create_task(ask(lines))
        await server.arrived.get()
        await lines.close()
        with pytest.raises(ConnectionError):
            await waiting
        assert not lines._lines
        server.gate.set()
