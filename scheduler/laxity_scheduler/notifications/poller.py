"""Reads what others wrote elsewhere, at an interval, in a thread of its own.

Epochs in MLflow become history. Workers report their own epochs, but what trained before laxity
came, on another cluster or in a notebook, stands in MLflow alone; a job that did both counts once.
Cancelled flow runs in Prefect cancel their jobs. A source that does not answer is logged once and
asked again; it never delays a cycle.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

LOG: Final = logging.getLogger(__name__)
INTERVAL_S: Final = 60.0
UNDUE_INTERVAL_S: Final = 1.0  # until it is due for the first time


class Poller:
    """Calls `read`, which returns the number of runs it looked at, while `due` says so."""

    def __init__(
        self,
        read: Callable[[], int],
        *,
        due: Callable[[], bool],
        interval_s: float = INTERVAL_S,
        source: str = "MLflow",
    ) -> None:
        self._read, self._due, self._interval_s, self._source = read, due, interval_s, source
        self._failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name="laxity-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poll_once(self) -> bool:
        """Read once, if it is due; whether that succeeded."""
        if not self._due():
            return True
        try:
            runs = self._read()
        except Exception as error:  # noqa: BLE001 - MLflow raises what its stores raise
            if not self._failing:
                LOG.warning("%s cannot be read, it is asked again: %s", self._source, error)
            self._failing = True
            return False
        LOG.debug("%d runs of %s read", runs, self._source)
        self._failing = False
        return True

    def close(self) -> None:
        """Read no more. A call that is under way is left to itself."""
        self._stopping.set()
        self._thread.join(timeout=1.0)

    def _run_loop(self) -> None:
        while not self._stopping.is_set():
            self.poll_once()
            self._stopping.wait(self._interval_s if self._due() else UNDUE_INTERVAL_S)
