"""A small API server whose watches say what a test tells them to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from laxity_k8s.http.session import ApiSession


def line(kind: str, name: str, revision: int, *, uid: str = "") -> bytes:
    """As an API server writes it."""
    meta = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"}
    thing: dict[str, Any] = {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {**meta, "resourceVersion": str(revision)},
    }
    return orjson.dumps({"type": kind, "object": thing})


async def _nobody() -> dict[str, str]:
    return {}


@asynccontextmanager
async def served(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[ApiSession]:
    """A session to a server that answers every GET so."""
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with ApiSession(host, None, _nobody) as api_session:
            yield api_session
    finally:
        await runner.cleanup()


async def next_of(queue: asyncio.Queue[Any]) -> Any:
    return await asyncio.wait_for(queue.get(), 30.0)
