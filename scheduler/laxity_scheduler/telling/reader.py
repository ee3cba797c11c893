"""What others wrote elsewhere is read now and then, from a thread of its own.

Epochs in MLflow become history: workers report theirs themselves, but what trained before laxity
came, on another cluster or in a notebook, is known from MLflow alone; a job that did both counts
once. Cancelled flow runs in Prefect cancel their jobs. Who is away is told once and asked again: it
costs knowledge, never a cycle.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

LOG: Final = logging.getLogger(__name__)
EVERY_S: Final = 60.0
LOOK_S: Final = 1.0  # until it is due for the first time


class Reader:
    """Calls `read`, which returns how many runs it looked at, while `due` says so."""

    def __init__(
        self,
        read: Callable[[], int],
        *,
        due: Callable[[], bool],
        every_s: float = EVERY_S,
        whom: str = "MLflow",
    ) -> None:
        self._read, self._due, self._every_s, self._whom = read, due, every_s, whom
        self._failing = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="laxity-reader", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def round(self) -> bool:
        """Read once, if it is due; whether that went well."""
        if not self._due():
            return True
        try:
            runs = self._read()
        except Exception as error:  # noqa: BLE001 - MLflow raises what its stores raise
            if not self._failing:
                LOG.warning("%s cannot be read, it is asked again: %s", self._whom, error)
            self._failing = True
            return False
        LOG.debug("%d runs of %s read", runs, self._whom)
        self._failing = False
        return True

    def close(self) -> None:
        """Read no more. A call that is under way is left to itself."""
        self._over.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._over.is_set():
            self.round()
            self._over.wait(self._every_s if self._due() else LOOK_S)
