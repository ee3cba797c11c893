"""A watch that comes back when the API server has forgotten what came after its last change."""

import asyncio
from typing import Any

import orjson
import pytest
from aiohttp import web

from laxity_k8s.http.watch import KindWatch
from tests.support.watched_server import line, next_of, served

OLD = ("same", "changed", "gone")  # what was seen before it was cut


@pytest.mark.asyncio
async def test_a_watch_that_comes_too_late_tells_the_differences_and_what_each_object_is() -> None:
    """Lists do not say what their items are; a Job that is no Job would be refused."""
    listed = [
        {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(revision)}}
        for name, revision in (("same", 2), ("changed", 8), ("new", 9))
    ]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("resourceVersion") == "3":
            return web.json_response({"kind": "Status", "code": 410}, status=410)
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "9"}, "items": listed})
        told.put_nowait(request.query["resourceVersion"])
        await over.wait()
        return web.Response()

    told: asyncio.Queue[Any] = asyncio.Queue()
    over = asyncio.Event()
    async with served(answer) as api_session:
        watch = KindWatch(api_session, "jobs", "3", told.put_nowait)
        watch.remember_all(tuple(orjson.loads(line("", name, 2))["object"] for name in OLD))
        running = asyncio.create_task(watch.run())
        changes = await next_of(told)
        assert await next_of(told) == "9", "and it goes on from there"
        running.cancel()
        over.set()
        await asyncio.gather(running, return_exceptions=True)
    assert [(one.type, one.object["metadata"]["name"]) for one in changes] == [
        ("DELETED", "gone"),
        ("MODIFIED", "changed"),
        ("ADDED", "new"),
    ]
    kinds = {(one.object["apiVersion"], one.object["kind"]) for one in changes}
    assert kinds == {("batch/v1", "Job")}
