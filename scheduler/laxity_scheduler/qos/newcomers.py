"""Hundreds of newcomers promised their deadlines in one go: see `waiting_table`."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import DUE_AT, HARD, LEFT, PROMISED_DUE_AT, SERVICE
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.verdict import PendingPromise
from laxity_scheduler.promising.claims import Claims
from laxity_scheduler.promising.planner import Plans
from laxity_scheduler.promising.reservations import MOST_OTHERS, Reservations
from laxity_scheduler.promising.waiting_table import WaitingTable

CHUNK: Final = 512  # so many are planned in one call


class Newcomers:
    """Hard jobs that ask for a promise, in order, up to the first that does not wait."""

    def __init__(
        self, table: WaitingTable, jobs: Sequence[Job], reservations: Reservations
    ) -> None:
        self._table, self._reservations = table, reservations
        places = table.at(jobs)
        due_s = table.column(DUE_AT)[places] - table.now
        self._claims = Claims(jobs[: len(places)], table.rows[places], due_s)
        self._size = table.size[places]
        rest, width = table.rest_s[places], table.width[places]
        in_time = (rest <= due_s[:, None] + TINY_S) & (rest < FOREVER) & (width > 0)
        level, among = in_time.argmax(axis=1), np.arange(len(places))
        self._width, self._rest_s = width[among, level], rest[among, level]
        may = np.full(len(places), not reservations.state.budgets)
        may &= _possible(table, places, reservations)
        self._odd = np.flatnonzero(~(may & in_time.any(axis=1)))

    def promise(self, first: int) -> dict[str, PendingPromise]:
        """The next of them that are plainly in time: counted among the claims."""
        index = int(np.searchsorted(self._odd, first))
        last = int(self._odd[index]) if index < len(self._odd) else len(self._size)
        if self._reservations.roomy:
            return self._together(slice(first, last))
        return self._behind(first, last)

    def _together(self, places: slice) -> dict[str, PendingPromise]:
        """As long as all claims run at once, each on its least width."""
        before, claims = self._reservations.first_names, self._claims.at(places)
        widths, sizes, finish_s = self._width[places], self._size[places], self._rest_s[places]
        count = self._reservations.admit_all(claims, widths, finish_s, sizes)
        return self._build_pending_promises(claims.at(slice(count)), before)

    def _behind(self, first: int, last: int) -> dict[str, PendingPromise]:
        """As long as each is in time behind all claims, as they are planned."""
        promises: dict[str, PendingPromise] = {}
        count = CHUNK
        while count == CHUNK:
            before, begin = self._reservations.first_names, first + len(promises)
            places = slice(begin, min(last, begin + CHUNK))
            count = self._reservations.admit_behind(self._plans, places)
            claims = self._claims.at(slice(begin, begin + count))
            promises |= self._build_pending_promises(claims, before)
        return promises

    @cached_property
    def _plans(self) -> Plans:
        """Room for their shares."""
        return Plans(self._reservations.room.planner, self._claims)

    def _build_pending_promises(
        self, claims: Claims, before: Sequence[str]
    ) -> dict[str, PendingPromise]:
        """Promises that rest on the first claims of all: those before, then one another."""
        jobs, curves, begun = claims.jobs, self._table.frame.curves, len(before)
        sources = [curves[row].source for row in claims.rows.tolist()]
        others = [*before, *(job.id for job in jobs[: MOST_OTHERS - begun])]
        names_by_source = {source: (source, *others) for source in set(sources)}
        rests_on = [
            names_by_source[source]
            if begun + row >= MOST_OTHERS
            else (source, *others[: begun + row])
            for row, source in enumerate(sources)
        ]
        return {
            job.id: PendingPromise(job.deadline_at, names)
            for job, names in zip(jobs, rests_on, strict=True)
        }


def _possible(table: WaitingTable, at: Ints, reservations: Reservations) -> NDArray[np.bool_]:
    """Whether none of the refusals applies that no order of claims can change."""
    room, due_at = reservations.room, table.column(DUE_AT)[at]
    size, width, jobs = table.size[at], table.width[at], [table.jobs[row] for row in at.tolist()]
    kinds = list(zip([job.eligible for job in jobs], size.tolist(), strict=True))
    slots_by_kind = {
        kind: room.slots_for(job) for kind, job in dict(zip(kinds, jobs, strict=True)).items()
    }
    slots = np.array([slots_by_kind[kind] for kind in kinds], dtype=np.int64)
    there = (width > 0) & (width <= slots[:, None])
    fastest = np.where(there, table.rest_s[at], FOREVER).min(axis=1)
    promised_at = table.column(PROMISED_DUE_AT)[at]
    first = np.array([job.widths[0] for job in jobs], dtype=np.int64)
    possible: NDArray[np.bool_] = table.column(SERVICE)[at] == HARD
    possible &= promised_at == -FOREVER
    possible &= (due_at < FOREVER) & (due_at > table.now) & (table.column(LEFT)[at] > 0.0)
    possible &= (size <= max(room.state.capacity("").training, default=0)) & (first <= slots)
    possible &= table.total_s("p90")[at, 0] < FOREVER
    with np.errstate(invalid="ignore"):
        possible &= table.now + fastest - due_at <= 0.0
    return possible
