"""A worker whose first epoch is told while it runs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from laxity.worker.data.io_meter import (
    Meter,
)
from laxity_profiler.estimate import Workload
from tests.support.runs import line

DATA_BYTES = 12_000_000_000


CHUNK = 4 << 20


EPOCH_S = 120.0


class Link:
    """A storage link of a given rate, on a clock of its own: reading is what makes time pass."""

    def __init__(self, *, epoch_s: float = EPOCH_S, seed: int = 0, jitter: float = 0.3) -> None:
        self.now = 1_000.0
        self.fetched = 0
        self._rate = DATA_BYTES / epoch_s
        self._random = np.random.default_rng(seed)
        self._jitter = jitter

    def chunks(self, *, cached_until: float = 0.0) -> Iterator[int]:
        """One pass over the data; the first part of it may come out of a cache, at once."""
        read = 0
        while read < DATA_BYTES:
            cached = read < cached_until * DATA_BYTES
            took_s = CHUNK / self._rate * self._random.lognormal(0.0, self._jitter)
            self.now += 0.01 * took_s if cached else took_s
            self.fetched += 0 if cached else CHUNK
            read += CHUNK
            yield CHUNK


def told(link: Link, *, width: int = 1, **how: Any) -> tuple[list[dict[str, Any]], float]:
    """The lines of worker 0 in an epoch that it reads a part of, and how long the epoch took."""
    meter = Meter(clock=lambda: link.now, storage=lambda: link.fetched)
    meter.begin()
    began, looked, lines = link.now, link.now, []
    for n, size in enumerate(link.chunks(**how)):
        if n % width == 0:
            meter.count(size, of_file=True)
        if link.now - looked > 0.5:
            looked = link.now
            lines += [fields for fields in [meter.look()] if fields]
    return lines, link.now - began


def within(lines: list[dict[str, Any]], limit_s: float) -> dict[str, Any]:
    return [fields for fields in lines if fields["read_s"][-1] <= limit_s][-1]


def unseen(**fields: Any) -> Workload:
    return Workload("unseen", 10, **{"dataset_bytes": DATA_BYTES} | fields)


def read_line(seq: int, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return line(seq, "read", epoch=1, width=1, **fields | more)
