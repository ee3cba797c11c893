"""Wakes long polls: the loop's thread tells coroutines that something they wait for has changed.

A long poll must not hold a thread for 25 s, so subscribers are asyncio events, each set through its
own event loop. A notification carries no data; the subscriber reads the new state itself.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from threading import Lock

Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Notifier:
    """Named topics. `notify` may be called from any thread, `subscribe` inside a coroutine."""

    def __init__(self) -> None:
        self.closed = False
        self._lock = Lock()
        self._waiters: dict[str, set[Waiter]] = {}

    @contextlib.contextmanager
    def subscribe(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set at every notification of this topic from now on."""
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
        """Notify all topics for the last time: the service stops."""
        self.closed = True
        for name in self.subscribers():
            self.notify(name)

    def subscribers(self, prefix: str = "") -> tuple[str, ...]:
        """The topics that have subscribers."""
        with self._lock:
            return tuple(name for name in self._waiters if name.startswith(prefix))


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set within this time; it is cleared afterwards."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    event.clear()
    return True
