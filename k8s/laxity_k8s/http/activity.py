"""Who is at something at this moment, for those who had better wait until nobody is."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Activity:
    """How many are at it. Made and used on one event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """While this is open, `wait_until_idle` waits."""
        self.count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            if not self.count:
                self._idle.set()

    async def wait_until_idle(self, longest_s: float) -> None:
        """Return when nobody is at it, or after that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):  # wait_for may swallow a cancellation
                await self._idle.wait()
