"""Rings for those who wait: the loop's thread tells coroutines that something they asked for is new.

A long poll must not hold a thread for 25 s, so waiters are asyncio events, each rung through its
own event loop. A ring carries nothing; who hears it looks for himself.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from threading import Lock

Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Notifier:
    """Named bells. `ring` may be called from any thread, `listening` inside a coroutine."""

    def __init__(self) -> None:
        self.closed = False
        self._lock = Lock()
        self._waiters: dict[str, set[Waiter]] = {}

    @contextlib.contextmanager
    def subscribe(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set at every ring of this bell from now on."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiters.setdefault(name, set()).add(waiter)
        try:
            yield waiter[1]
        finally:
            with self._lock:
                self._waiters[name].discard(waiter)
                if not self._waiters[name]:
                    del self._waiters[name]

    def notify(self, name: str) -> None:
        with self._lock:
            waiters = tuple(self._waiters.get(name, ()))
        for loop, event in waiters:
            with contextlib.suppress(RuntimeError):  # that loop has been closed
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Ring them all for the last time: the service stops, and nobody should wait for it."""
        self.closed = True
        for name in self.subscribers():
            self.notify(name)

    def subscribers(self, prefix: str = "") -> tuple[str, ...]:
        """The bells that somebody listens to."""
        with self._lock:
            return tuple(name for name in self._waiters if name.startswith(prefix))


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Whether the bell rang within so many seconds; it is silent again afterwards."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    event.clear()
    return True
