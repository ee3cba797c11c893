"""A watch that never misses or doubles a change: resumed when cut, relisted when it is too late.

An API server ends a watch every few minutes, forgets old versions (410 Gone) and restarts. What the
caller has seen is kept as resourceVersions, so after a new list only the differences are told.

Watches of several kinds are cut together and would come back seconds apart, each when its pause is
over: the first that is back wakes the others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import aiohttp
import orjson

from laxity import json_tree
from laxity.backoff import Backoff
from laxity_k8s.cluster_api import ApiError, Change, Json, Kind, ignore_cut
from laxity_k8s.http.paths import collection_path, whole_items
from laxity_k8s.http.session import ApiSession
from laxity_k8s.objects import pods

LOG = logging.getLogger("laxity.k8s.watch")
GONE: Final = 410
SERVER_TIMEOUT_S: Final = 300
SILENCE_S: Final = 330.0
STEADY_S: Final = 1.0  # a watch that was open for so long is opened again at once
BACKOFF: Final = Backoff(first_s=0.1, longest_s=5.0)
LATE_S: Final = 5.0  # a watch that takes longer to open is told as cut
OnChanges = Callable[[Sequence[Change]], None]


class Recovery:
    """Wakes the watches of one API server that wait before they try again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def announce(self) -> None:
        """One of them is open again."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, longest_s: float) -> bool:
        """Return when one is open again, or after that time; whether one is."""
        event = self._event
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):  # wait_for may swallow a cancellation
                await event.wait()
        return event.is_set()


class KindWatch:
    """One kind, watched until cancelled; changes and cuts are called back in order."""

    def __init__(
        self,
        session: ApiSession,
        kind: Kind,
        since: str,
        on_changes: OnChanges,
        *,
        on_cut: Callable[[bool], None] = ignore_cut,
        recovery: Recovery | None = None,
    ) -> None:
        self._session = session
        self._kind: Kind = kind
        self._path = collection_path(kind)
        self._since = since
        self._on_changes, self._on_cut = on_changes, on_cut
        self._recovery = recovery or Recovery()
        self._cut = False
        self._opened_at = float("inf")
        self._known: dict[str, Json] | None = None  # by id; None: what the caller listed itself

    def remember_all(self, items: tuple[Json, ...]) -> None:
        """What the caller has listed, so that a deletion missed while away can be told."""
        self._known = {json_tree.object_id(item): item for item in items}

    async def run(self) -> None:
        """Forever; ends by cancellation only."""
        failures = 0
        while True:
            self._opened_at = float("inf")
            ended_well = await self._follow_once()
            steady = asyncio.get_running_loop().time() - self._opened_at >= STEADY_S
            if steady and ended_well:  # as every few minutes
                continue
            self._tell_cut(cut=True)
            failures = 1 if steady else failures + 1
            if await self._recovery.wait(BACKOFF.delay_s(failures)):
                failures = 0

    async def _follow_once(self) -> bool:
        """Follow as long as it goes; whether the API server ended it in good order."""
        try:
            await self._follow_stream()
        except ApiError as error:
            if error.status == GONE:
                LOG.info("%s: version %s is too old, listing anew", self._path, self._since)
                self._tell_cut(cut=True)
                await self._list_anew()
            else:
                LOG.info("%s: %s", self._path, error)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            LOG.info("watch of %s cut: %s", self._path, error)
        else:
            return True
        return False

    def _tell_cut(self, *, cut: bool) -> None:
        if cut != self._cut:
            self._cut = cut
            self._on_cut(cut)

    async def _follow_stream(self) -> None:
        reply = await self._open_stream()
        try:
            async for lines in _read_lines(reply):
                self._take_lines(lines)
        finally:
            reply.close()

    async def _open_stream(self) -> aiohttp.ClientResponse:
        query = {
            "watch": "1",
            "resourceVersion": self._since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(SERVER_TIMEOUT_S),
        }
        loop = asyncio.get_running_loop()
        late = loop.call_later(LATE_S, partial(self._tell_cut, cut=True))
        try:
            reply = await self._session.open_stream(self._path, query, silence_s=SILENCE_S)
        finally:
            late.cancel()
        self._opened_at = loop.time()
        self._tell_cut(cut=False)
        self._recovery.announce()
        return reply

    def _take_lines(self, lines: Sequence[bytes]) -> None:
        """What came together is told together, up to an error."""
        changes: list[Change] = []
        try:
            changes.extend(self._read_event(orjson.loads(line)) for line in lines)
        finally:
            self._on_changes(changes)

    def _read_event(self, event: dict[str, Any]) -> Change:
        item: Json = event["object"]
        if event["type"] == "ERROR":
            raise ApiError(
                str(item.get("message", "watch error")), status=pods.count_of(item.get("code"))
            )
        self._since = item["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self._remember_item(event["type"], item)
        return Change(event["type"], item)

    def _remember_item(self, kind: str, item: Json) -> None:
        if self._known is None:
            return
        if kind == "DELETED":
            self._known.pop(json_tree.object_id(item), None)
        else:
            self._known[json_tree.object_id(item)] = item

    async def _list_anew(self) -> None:
        """List anew and tell the differences; if that fails, too, the next attempt comes here again.

        The newest there is: an older list would lack what was seen already, as if it were deleted.
        """
        try:
            answer = await self._session.call_json("GET", self._path, timeout_s=120.0, attempts=1)
        except ApiError as error:
            LOG.info("%s: %s", self._path, error)
            return
        previous = self._known or {}
        fresh = {json_tree.object_id(item): item for item in whole_items(self._kind, answer)}
        changes = [Change("DELETED", previous[gone]) for gone in previous.keys() - fresh.keys()]
        for name, item in fresh.items():
            old = previous.get(name)
            if old is None or _version_of(old) != _version_of(item):
                changes.append(Change("ADDED" if old is None else "MODIFIED", item))
        self._on_changes(changes)
        self._known = fresh
        self._since = answer["metadata"]["resourceVersion"]


async def _read_lines(reply: aiohttp.ClientResponse) -> AsyncIterator[list[bytes]]:
    """Whole lines of any length (an object may be larger than the reader's buffer), as they come."""
    rest = b""
    async for block in reply.content.iter_any():
        *whole, rest = (rest + block).split(b"\n")
        lines = [line for line in whole if line]
        if lines:
            yield lines


def _version_of(item: Json) -> str:
    return str(item["metadata"]["resourceVersion"])
