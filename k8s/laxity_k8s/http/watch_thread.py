"""A running watch: its changes are called back from a thread of its own.

A callback may wait for a lock whose holder waits for the API: it must not stop the event loop.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from laxity_k8s.cluster_api import Change, Kind
from laxity_k8s.http.watch import KindWatch


class WatchThread:
    """Calls back, in order, whatever is handed to `take`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        kind: Kind,
        on_change: Callable[[Change], None],
        on_cut: Callable[[bool], None],
    ) -> None:
        self._loop = loop
        self._on_change, self._on_cut = on_change, on_cut
        self._changes: SimpleQueue[Sequence[Change] | bool | None] = SimpleQueue()
        self._teller = threading.Thread(
            target=self._deliver_changes, name=f"laxity-watch-{kind}", daemon=True
        )
        self.take = self._changes.put

    def begin(self, watched: KindWatch) -> None:
        self._running = asyncio.run_coroutine_threadsafe(watched.run(), self._loop)
        self._teller.start()

    def stop(self) -> None:
        """Returns when no callback will come any more (unless called from a callback)."""
        self._running.cancel()
        self._changes.put(None)
        if threading.current_thread() is not self._teller:
            self._teller.join()

    def _deliver_changes(self) -> None:
        while (changes := self._changes.get()) is not None:
            if isinstance(changes, bool):
                self._on_cut(changes)
                continue
            for change in changes:
                if self._running.cancelled():
                    return
                self._on_change(change)
