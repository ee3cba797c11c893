"""Quotas and limit ranges of all namespaces, read anew when one of them changes.

Their status changes with each pod, which is no news. Where they may be listed and not watched they
are read every half minute all the same.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from laxity_k8s.cluster_api import ApiError, Change, Json, Kind, Listing, Watch

LOG: Final = logging.getLogger(__name__)
EVERY_S: Final = 30.0
KINDS: Final[tuple[Kind, Kind]] = ("resourcequotas", "limitranges")
Specs = tuple[tuple[Json, ...], tuple[Json, ...]]


class QuotaWatch:
    """`quotas` and `ranges` as they were read last; empty until then, and where they may not be."""

    def __init__(
        self,
        list_all: Callable[[Kind], Listing],
        on_change: Callable[[], None],
        *,
        follow: Callable[..., Watch] | None = None,
    ) -> None:
        self._list, self._on_change, self._follow = list_all, on_change, follow
        self._ended, self._changed = threading.Event(), threading.Event()
        self._problem = ""
        self._watches: list[Watch] = []
        self.found: Specs = ((), ())
        self._thread = threading.Thread(
            target=self._read_forever, name="laxity-quotas", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._changed.set()
        for watch in self._watches:
            watch.stop()

    def _read_forever(self) -> None:
        while not self._ended.is_set():
            self._changed.clear()
            self.read_once()
            self._changed.wait(EVERY_S)

    def read_once(self) -> None:
        """Look once; what cannot be read is taken to be as before."""
        try:
            listings = [self._list(kind) for kind in KINDS]
            self._begin_watches([listing.resource_version for listing in listings])
        except (ApiError, RuntimeError) as error:  # the connection is being closed
            if str(error) != self._problem and not self._ended.is_set():
                LOG.warning("quotas are not known: %s", error)
            self._problem = str(error)
            return
        self._problem = ""
        quotas, ranges = (tuple(map(_strip_status, listing.items)) for listing in listings)
        answer = quotas, ranges
        if answer != self.found:
            self.found = answer
            self._on_change()

    def _begin_watches(self, versions: list[str]) -> None:
        """Follow what comes after the first look."""
        if self._follow is None or self._watches or self._ended.is_set():
            return
        for kind, since in zip(KINDS, versions, strict=True):
            self._watches.append(self._follow(kind, since=since, on_change=self._take_change))

    def _take_change(self, change: Change) -> None:
        is_known = change.type != "DELETED" and any(
            _strip_status(change.object) in specs for specs in self.found
        )
        if change.type != "BOOKMARK" and not is_known:
            self._changed.set()


def _strip_status(thing: Json) -> Json:
    """Without status and revision: what is used changes all the time."""
    metadata = {key: thing["metadata"].get(key) for key in ("namespace", "name")}
    return {"metadata": metadata, "spec": thing.get("spec") or {}}
