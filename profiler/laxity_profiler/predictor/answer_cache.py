"""Answers that were given, so that thousands of unchanged jobs cost a look-up and no arithmetic.

A cycle asks about every job at each of its widths, and few jobs changed since the last one. Rows
are found by the identity of workload and progress, which snapshots share for unchanged jobs; both
are kept alive here, so that an identity is never taken by another object.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Ask, Estimates, Source

MOST_ROWS: Final = 400_000
NUMBERS: Final = 9  # of an answer: its quantiles, the shares of its next epoch, and the P90 of that
_WIDTHS: Final = 1 << 24


class AnswerCache:
    """A memory of rows. Not for several threads at once: its owner has a lock."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, int], int] = {}
        self._alive: list[tuple[Any, Any]] = []
        self._rows: dict[int, int] = {}
        self._sources: list[Source] = []
        self._numbers: NDArray[np.float64] = np.empty((NUMBERS, 0))
        self._points: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._filled = 0

    def __reduce__(self) -> tuple[type["AnswerCache"], tuple[()]]:
        return (AnswerCache, ())  # a copy starts with an empty memory

    def table(self, asks: Sequence[Ask], answer: Callable[[Sequence[Ask]], Estimates]) -> Estimates:
        """Answers to all asks; `answer` is called once, with those that are new."""
        if self._filled > MOST_ROWS:
            self.__init__()  # type: ignore[misc]
        keys = self._ask_keys(asks)
        if None in (known_rows := list(map(self._rows.get, keys))):
            self._learn_answers(asks, keys, known_rows, answer)
        rows = list(map(self._rows.__getitem__, keys))
        index = np.array(rows, dtype=np.int64)
        numbers = self._numbers[:, index]
        return Estimates(
            numbers[0],
            numbers[1],
            numbers[2],
            numbers[3],
            tuple(map(self._sources.__getitem__, rows)),
            self._points[index],
            numbers[4:8].T,
            numbers[8],
        )

    def _ask_keys(self, asks: Sequence[Ask]) -> list[int]:
        """One number per ask: its job's number here, and its width."""
        workloads = [ask.workload for ask in asks]
        progress = [ask.progress for ask in asks]
        widths = [ask.workers for ask in asks]
        jobs = self._jobs
        keys = []
        old_work: Any = None
        old_progress: Any = None
        start = 0
        for work, made, width in zip(workloads, progress, widths, strict=True):
            if work is not old_work or made is not old_progress:
                old_work, old_progress = work, made
                job_number = jobs.get((id(work), id(made)))
                start = self._job_number(work, made) if job_number is None else job_number
            keys.append(start + width)
        return keys

    def _job_number(self, workload: Any, progress: Any) -> int:
        self._alive.append((workload, progress))
        number = len(self._alive) * _WIDTHS
        self._jobs[id(workload), id(progress)] = number
        return number

    def _learn_answers(
        self,
        asks: Sequence[Ask],
        keys: Sequence[int],
        rows: Sequence[int | None],
        answer: Callable[[Sequence[Ask]], Estimates],
    ) -> None:
        new = {key: ask for key, ask, row in zip(keys, asks, rows, strict=True) if row is None}
        estimates = answer(list(new.values()))
        first, last = self._filled, self._filled + len(new)
        self._grow_arrays(last)
        e = estimates
        shares = () if e.next_share is None else e.next_share.T
        columns = (e.p10_s, e.p50_s, e.mean_s, e.p90_s, *shares, e.next_p90_s)
        for quantile, column in enumerate(columns):
            self._numbers[quantile, first:last] = column
        self._points[first:last] = estimates.n_points
        self._sources += estimates.sources
        self._rows.update(zip(new, range(first, last), strict=True))
        self._filled = last

    def _grow_arrays(self, rows: int) -> None:
        if rows <= self._numbers.shape[1]:
            return
        size = max(rows, 2 * self._numbers.shape[1], 1024)
        numbers = np.empty((NUMBERS, size))
        numbers[:, : self._filled] = self._numbers[:, : self._filled]
        points = np.empty(size, dtype=np.int64)
        points[: self._filled] = self._points[: self._filled]
        self._numbers, self._points = numbers, points
