"""Quotas and limit ranges of all namespaces, read anew every half minute in a thread of its own."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from laxity_k8s.cluster_api import ApiError, Json, Kind, Listing

LOG: Final = logging.getLogger(__name__)
EVERY_S: Final = 30.0
Specs = tuple[tuple[Json, ...], tuple[Json, ...]]


class QuotaWatch:
    """`quotas` and `ranges` as they were read last; empty until then, and where they may not be."""

    def __init__(self, list_all: Callable[[Kind], Listing], on_change: Callable[[], None]) -> None:
        self._list, self._on_change = list_all, on_change
        self._ended = threading.Event()
        self._problem = ""
        self.found: Specs = ((), ())
        self._thread = threading.Thread(target=self._run, name="laxity-quotas", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.read()
            self._ended.wait(EVERY_S)

    def read(self) -> None:
        """Look once; what cannot be read is taken to be as before."""
        try:
            found = (
                tuple(map(_slim, self._list("resourcequotas").items)),
                tuple(map(_slim, self._list("limitranges").items)),
            )
        except (ApiError, RuntimeError) as error:  # the connection is being closed
            if str(error) != self._problem and not self._ended.is_set():
                LOG.warning("quotas are not known: %s", error)
            self._problem = str(error)
            return
        self._problem = ""
        if found != self.found:
            self.found = found
            self._on_change()


def _slim(thing: Json) -> Json:
    """Without status and revision: what is used changes all the time."""
    metadata = {key: thing["metadata"].get(key) for key in ("namespace", "name")}
    return {"metadata": metadata, "spec": thing.get("spec") or {}}
