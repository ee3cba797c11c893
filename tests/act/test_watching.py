"""Watched changes wait while patches are sent; watches that are cut say so, and come back together."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web

from laxity.backoff import Backoff
from laxity_k8s.cluster_api import Change
from laxity_k8s.http import session
from laxity_k8s.http import watch as watching
from laxity_k8s.http.session import Wire
from laxity_k8s.http.watch import Bell, KindWatch, keep_latest
from laxity_scheduler.service_clock import ServiceClock
from tests.support.watched_server import _nobody, line, next_of, served

Told = tuple[str, str, str]  # type, name, resourceVersion


@pytest.fixture(autouse=True)
def _no_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is; a test in which one does sets it itself."""
    for name in ("HELD_BACK_S", "AWAY_S", "LATE_S"):
        monkeypatch.setattr(watching, name, 3_600.0)


class Watched:
    """A server with one open watch, and what its watcher was told, in batches."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.reply: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
        self.told: asyncio.Queue[list[Told]] = asyncio.Queue()

    async def send(self, *lines: bytes) -> None:
        for one in lines:
            await self.reply.result().write(one + b"\n")

    def take(self, changes: Sequence[Change]) -> None:
        metas = [(change.type, change.object["metadata"]) for change in changes]
        self.told.put_nowait([(kind, m["name"], m["resourceVersion"]) for kind, m in metas])

    async def arrived(self) -> None:
        """Return when what was sent before has arrived."""
        for _ in range(20):
            await self.wire.call_bytes("GET", "/ping")

    async def batch(self) -> list[Told]:
        return await asyncio.wait_for(self.told.get(), 30.0)


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        there.reply.set_result(reply)
        await over.wait()
        return reply

    async def pinged(_: web.Request) -> web.StreamResponse:
        return web.Response()

    app = web.Application()
    app.router.add_get("/apis/batch/v1/jobs", answer)
    app.router.add_get("/ping", pinged)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with Wire(host, None, _nobody) as wire:
        there = Watched(wire)
        running = asyncio.create_task(KindWatch(wire, "jobs", "1", there.take).run())
        try:
            await asyncio.wait_for(there.reply, 30.0)
            yield there
        finally:
            running.cancel()
            over.set()
            await asyncio.gather(running, return_exceptions=True)
            await runner.cleanup()


@pytest.mark.asyncio
async def test_while_patches_are_sent_changes_wait_and_the_latest_of_each_is_told() -> None:
    async with watched() as there:
        with there.wire.acting.hold():
            await there.send(line("ADDED", "a", 2))
            assert await there.batch() == [("ADDED", "a", "2")]
            await there.send(line("MODIFIED", "a", 3), line("ADDED", "b", 4))
            await there.arrived()
            await there.send(line("MODIFIED", "a", 5), line("DELETED", "b", 6))
            await there.arrived()
            assert there.told.empty()
        assert await there.batch() == [("MODIFIED", "a", "5"), ("DELETED", "b", "6")]


@pytest.mark.asyncio
async def test_they_wait_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "HELD_BACK_S", 0.05)
    async with watched() as there:
        with there.wire.acting.hold():
            await there.send(line("ADDED", "a", 2))
            assert await there.batch() == [("ADDED", "a", "2")]
            await there.send(line("MODIFIED", "a", 3))
            assert await there.batch() == [("MODIFIED", "a", "3")]


@pytest.mark.asyncio
async def test_at_rest_every_change_is_told() -> None:
    async with watched() as there:
        lines = [line("MODIFIED", "a", revision) for revision in range(2, 7)]
        await there.send(*lines)
        told: list[Told] = []
        while len(told) < 5:
            told += await there.batch()
        assert told == [("MODIFIED", "a", str(revision)) for revision in range(2, 7)]


class Reopened:
    """A server that keeps each watch open; what was asked of it, and its latest answer."""

    def __init__(self) -> None:
        self.since: asyncio.Queue[str] = asyncio.Queue()
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self.opens = asyncio.Event()
        self.opens.set()
        self.over = asyncio.Event()
        self.reply = web.StreamResponse()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/ping":
            return web.Response()
        self.since.put_nowait(request.query["resourceVersion"])
        await self.opens.wait()
        self.reply = web.StreamResponse()
        await self.reply.prepare(request)
        self.told.put_nowait("open")
        await self.over.wait()
        return self.reply

    async def wait_until_read(self) -> None:
        """Return when the first watch is open and reads: an answer that has left is not yet read."""
        assert (await next_of(self.since), await next_of(self.told)) == ("1", "open")
        await self.reply.write(line("BOOKMARK", "", 1) + b"\n")
        assert await next_of(self.told) == ["1"]

    async def closed(self) -> None:
        """Return when nobody listens to the latest answer any more."""
        async with asyncio.timeout(30.0):
            with suppress(ConnectionResetError):
                while True:
                    await self.reply.write(b"\n")
                    await asyncio.sleep(0.001)

    def take(self, changes: Sequence[Change]) -> None:
        self.told.put_nowait([one.object["metadata"]["resourceVersion"] for one in changes])


@asynccontextmanager
async def reopened() -> AsyncIterator[tuple[Reopened, Wire]]:
    there = Reopened()
    async with served(there.answer) as wire:
        watch = KindWatch(wire, "jobs", "1", there.take, on_cut=there.told.put_nowait)
        running = asyncio.create_task(watch.run())
        try:
            yield there, wire
        finally:
            running.cancel()
            there.opens.set()
            there.over.set()
            await asyncio.gather(running, return_exceptions=True)


def announced(wire: Wire, patches: int) -> None:
    """As many are about to be sent, none of them yet."""
    wire.awaited = patches


@pytest.mark.asyncio
async def test_while_many_patches_are_sent_a_watch_is_closed_and_then_goes_on_where_it_was() -> (
    None
):
    async with reopened() as (there, wire):
        await there.wait_until_read()
        announced(wire, watching.MANY_PATCHES)
        with wire.acting.hold():
            await there.reply.write(line("ADDED", "a", 2) + b"\n")
            assert await next_of(there.told) == ["2"]
            await there.closed()
            for _ in range(20):  # what was sent before has arrived by then
                await wire.call_bytes("GET", "/ping")
            assert there.since.empty()
            behind = asyncio.create_task(wire.unread.wait_until_idle(30.0))
        await behind
        assert not there.since.empty(), "it was open again before it counted as caught up"
        assert (await next_of(there.since), await next_of(there.told)) == ("2", "open")
        await there.reply.write(line("MODIFIED", "a", 3) + b"\n")
        assert await next_of(there.told) == ["3"], "and no cut was told"


@pytest.mark.asyncio
async def test_a_watch_stays_open_where_few_patches_are_left_to_send() -> None:
    async with reopened() as (there, wire):
        await there.wait_until_read()
        announced(wire, watching.MANY_PATCHES - 1)
        with wire.acting.hold():
            await there.reply.write(line("ADDED", "a", 2) + b"\n")
            assert await next_of(there.told) == ["2"]
            await there.reply.write(line("MODIFIED", "a", 3) + b"\n")
        assert await next_of(there.told) == ["3"]
        assert there.since.empty()


@pytest.mark.asyncio
async def test_patches_without_end_close_a_watch_once_and_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "AWAY_S", 0.05)
    monkeypatch.setattr(watching, "HELD_BACK_S", 0.05)
    async with reopened() as (there, wire):
        await there.wait_until_read()
        announced(wire, 10 * watching.MANY_PATCHES)
        with wire.acting.hold():
            await there.reply.write(line("ADDED", "a", 2) + b"\n")
            assert await next_of(there.told) == ["2"]
            assert (await next_of(there.since), await next_of(there.told)) == ("2", "open")
            for revision in ("3", "4"):
                await there.reply.write(line("MODIFIED", "a", int(revision)) + b"\n")
                assert await next_of(there.told) == [revision]
            assert there.since.empty()


@pytest.mark.asyncio
async def test_a_watch_that_opens_late_is_told_as_cut_until_it_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "LATE_S", 0.05)
    async with reopened() as (there, wire):
        await there.wait_until_read()
        announced(wire, watching.MANY_PATCHES)
        there.opens.clear()
        with wire.acting.hold():
            await there.reply.write(line("ADDED", "a", 2) + b"\n")
            assert await next_of(there.told) == ["2"]
        assert await next_of(there.since) == "2"
        assert await next_of(there.told) is True
        there.opens.set()
        assert [await next_of(there.told) for _ in range(2)] == ["open", False]


class Unsteady:
    """A server whose watches are taken or refused, kind by kind; `cut` breaks the open ones."""

    def __init__(self) -> None:
        self.refuses: set[str] = set()
        self.told: asyncio.Queue[tuple[str, bool | str]] = asyncio.Queue()
        self._open: list[tuple[web.Request, asyncio.Event]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if kind in self.refuses:
            return web.Response(status=503)
        reply, over = web.StreamResponse(), asyncio.Event()
        await reply.prepare(request)
        await reply.write(line("ADDED", "a", 2) + b"\n")
        self._open.append((request, over))
        await over.wait()
        return reply

    def cut(self) -> None:
        for request, over in self._open:
            if request.transport is not None:
                request.transport.abort()
            over.set()
        self._open.clear()

    def takers(
        self, kind: str
    ) -> tuple[Callable[[Sequence[Change]], None], Callable[[bool], None]]:
        """Both callbacks of a watch, into one queue."""

        def take(changes: Sequence[Change]) -> None:
            for one in changes:
                self.told.put_nowait((kind, one.type))

        return take, lambda cut: self.told.put_nowait((kind, cut))


@asynccontextmanager
async def unsteady() -> AsyncIterator[tuple[Unsteady, Wire]]:
    there = Unsteady()
    async with served(there.answer) as wire:
        yield there, wire
        there.cut()


@asynccontextmanager
async def following(there: Unsteady, wire: Wire, kind: Any, bell: Bell) -> AsyncIterator[None]:
    on_changes, on_cut = there.takers(kind)
    running = asyncio.create_task(
        KindWatch(wire, kind, "1", on_changes, on_cut=on_cut, bell=bell).run()
    )
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def heard(queue: asyncio.Queue[Any], count: int) -> list[Any]:
    return [await asyncio.wait_for(queue.get(), 30.0) for _ in range(count)]


@pytest.mark.asyncio
async def test_a_watch_that_is_cut_says_so_and_again_when_it_follows_before_it_tells_more() -> None:
    async with unsteady() as (there, wire), following(there, wire, "jobs", Bell()):
        assert await heard(there.told, 1) == [("jobs", "ADDED")]
        there.cut()
        assert await heard(there.told, 3) == [("jobs", True), ("jobs", False), ("jobs", "ADDED")]


@pytest.mark.asyncio
async def test_the_first_watch_that_is_back_wakes_those_that_wait_before_they_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "BACKOFF", Backoff(3_600.0, 3_600.0))
    bell = Bell()
    async with unsteady() as (there, wire):
        there.refuses = {"pods", "nodes"}
        async with following(there, wire, "pods", bell), following(there, wire, "nodes", bell):
            assert sorted(await heard(there.told, 2)) == [("nodes", True), ("pods", True)]
            there.refuses = set()
            async with following(there, wire, "jobs", bell):
                told = await heard(there.told, 5)
    assert {("nodes", False), ("pods", False)} < set(told)


def test_another_object_by_the_same_name_is_another_object() -> None:
    lines = [line("DELETED", "a", 2, uid="old"), line("ADDED", "a", 3, uid="new")]
    assert keep_latest(lines) == lines


def test_a_line_that_does_not_say_whose_it_is_stays() -> None:
    odd = [b'{"object": {"metadata": {"uid": "x"}}, "type": "MODIFIED"}', b'{"type":"BOOKMARK"}']
    named = line("ADDED", "a", 2)
    assert keep_latest([odd[0], named, odd[1], line("MODIFIED", "a", 3)]) == [
        odd[0], odd[1], line("MODIFIED", "a", 3),
    ]  # fmt: skip


@pytest.mark.asyncio
async def test_answers_set_the_clock_that_deadlines_count_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ServiceClock()
    monkeypatch.setattr(session, "CLOCK", clock)
    earlier = {"Date": formatdate(time.time() - 240.0, usegmt=True)}

    async def late(_: web.Request) -> web.Response:
        return web.Response(headers=earlier)

    async with served(late) as wire:
        await wire.call_bytes("GET", "/late")

    assert abs(clock.ahead_s - 240.0) < 3.0
