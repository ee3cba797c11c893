"""Every watched change is told; watches that are cut say so, and come back together."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web

from laxity.backoff import Backoff
from laxity_k8s.cluster_api import Change
from laxity_k8s.http import session
from laxity_k8s.http import watch as watching
from laxity_k8s.http.session import ApiSession
from laxity_k8s.http.watch import KindWatch, Recovery
from laxity_scheduler.service_clock import ServiceClock
from tests.support.watched_server import _nobody, line, next_of, served

Told = tuple[str, str, str]  # type, name, resourceVersion


@pytest.fixture(autouse=True)
def _no_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is; a test in which one does sets it itself."""
    monkeypatch.setattr(watching, "LATE_S", 3_600.0)


class Watched:
    """A server with one open watch, and what its watcher was told, in batches."""

    def __init__(self) -> None:
        self.reply: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
        self.told: asyncio.Queue[list[Told]] = asyncio.Queue()

    async def send(self, *lines: bytes) -> None:
        for one in lines:
            await self.reply.result().write(one + b"\n")

    def take(self, changes: Sequence[Change]) -> None:
        metas = [(change.type, change.object["metadata"]) for change in changes]
        self.told.put_nowait([(kind, m["name"], m["resourceVersion"]) for kind, m in metas])

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

    app = web.Application()
    app.router.add_get("/apis/batch/v1/jobs", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with ApiSession(host, None, _nobody) as api_session:
        there = Watched()
        running = asyncio.create_task(KindWatch(api_session, "jobs", "1", there.take).run())
        try:
            await asyncio.wait_for(there.reply, 30.0)
            yield there
        finally:
            running.cancel()
            over.set()
            await asyncio.gather(running, return_exceptions=True)
            await runner.cleanup()


@pytest.mark.asyncio
async def test_every_change_is_told() -> None:
    async with watched() as there:
        lines = [line("MODIFIED", "a", revision) for revision in range(2, 7)]
        await there.send(*lines)
        told: list[Told] = []
        while len(told) < 5:
            told += await there.batch()
        assert told == [("MODIFIED", "a", str(revision)) for revision in range(2, 7)]


@pytest.mark.asyncio
async def test_a_watch_that_opens_late_is_told_as_cut_until_it_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "LATE_S", 0.05)
    opens, over = asyncio.Event(), asyncio.Event()
    told: asyncio.Queue[bool] = asyncio.Queue()

    async def answer(request: web.Request) -> web.StreamResponse:
        await opens.wait()
        reply = web.StreamResponse()
        await reply.prepare(request)
        await over.wait()
        return reply

    async with served(answer) as api_session:
        watch = KindWatch(api_session, "jobs", "1", lambda _: None, on_cut=told.put_nowait)
        running = asyncio.create_task(watch.run())
        assert await next_of(told) is True
        opens.set()
        assert await next_of(told) is False
        running.cancel()
        over.set()
        await asyncio.gather(running, return_exceptions=True)


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
async def unsteady() -> AsyncIterator[tuple[Unsteady, ApiSession]]:
    there = Unsteady()
    async with served(there.answer) as api_session:
        yield there, api_session
        there.cut()


@asynccontextmanager
async def following(
    there: Unsteady, api_session: ApiSession, kind: Any, recovery: Recovery
) -> AsyncIterator[None]:
    on_changes, on_cut = there.takers(kind)
    running = asyncio.create_task(
        KindWatch(api_session, kind, "1", on_changes, on_cut=on_cut, recovery=recovery).run()
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
    async with (
        unsteady() as (there, api_session),
        following(there, api_session, "jobs", Recovery()),
    ):
        assert await heard(there.told, 1) == [("jobs", "ADDED")]
        there.cut()
        assert await heard(there.told, 3) == [("jobs", True), ("jobs", False), ("jobs", "ADDED")]


@pytest.mark.asyncio
async def test_the_first_watch_that_is_back_wakes_those_that_wait_before_they_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "BACKOFF", Backoff(3_600.0, 3_600.0))
    recovery = Recovery()
    async with unsteady() as (there, api_session):
        there.refuses = {"pods", "nodes"}
        async with (
            following(there, api_session, "pods", recovery),
            following(there, api_session, "nodes", recovery),
        ):
            assert sorted(await heard(there.told, 2)) == [("nodes", True), ("pods", True)]
            there.refuses = set()
            async with following(there, api_session, "jobs", recovery):
                told = await heard(there.told, 5)
    assert {("nodes", False), ("pods", False)} < set(told)


@pytest.mark.asyncio
async def test_answers_set_the_clock_that_deadlines_count_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ServiceClock()
    monkeypatch.setattr(session, "CLOCK", clock)
    earlier = {"Date": formatdate(time.time() - 240.0, usegmt=True)}

    async def late(_: web.Request) -> web.Response:
        return web.Response(headers=earlier)

    async with served(late) as api_session:
        await api_session.call_bytes("GET", "/late")

    assert abs(clock.ahead_s - 240.0) < 3.0
