"""Who is in the way of claims, how far plans look, in which order: `room` asked of all rows at once."""

from collections.abc import Sequence
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame import fields, loops
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.promising.claims import Order, as_planned, by_deadline, in_turn
from laxity_scheduler.promising.reserve import Claim

if TYPE_CHECKING:
    from laxity_scheduler.promising.room import Room


class Columns:
    """The rows of a snapshot at its instant; `claimed` are those that the room knows claims of."""

    def __init__(self, room: "Room", claimed: Ints) -> None:
        self._room, self._lanes, self._rows = room, room.forecasts.frame, claimed
        self._runs = self.of(fields.WORKERS) > 0.0
        self._ends = self.of(fields.TERMINATING) > 0.0
        self.ended_s = self._lanes.levels("p90")[
            :, fields.STOP, 0
        ]  # when terminating pods are gone

    @cached_property
    def _claimed(self) -> Bools:
        found = np.zeros(len(self._runs), dtype=np.bool_)
        found[self._rows] = True
        return found

    @cached_property
    def times_s(self) -> tuple[Floats, Floats, Floats]:
        """When each ends, when its epoch does, and when its GPUs are free if it is stopped."""
        return loops.times_s(self._lanes.table, self._lanes.levels("p90"), self._room.forecasts.now)

    def rows(self, claims: Sequence[Claim]) -> Ints | None:
        """Their rows; None if one is not in the snapshot."""
        known = self._room.claims
        if len(claims) == len(known) and all(map(is_, claims, known)):
            return self._rows
        return self._lanes.rows([claim.job for claim in claims])

    def of(self, field: int) -> Floats:
        return self._lanes.table[:, field]

    def drain_s(self) -> float:
        """As `Room.drain_s`."""
        may_stop = (self.of(fields.PINNED) == 0.0) & (self.of(fields.STAYS) == 0.0)
        wider = self.of(fields.WORKERS) > self._lanes.levels("p90")[:, fields.WIDTH, 0]
        mine = self._runs & np.where(self._claimed, wider, may_stop)
        last_s = self.times_s[2][mine].max(initial=0.0)
        return max(float(last_s), float(self.ended_s[self._ends].max(initial=0.0)))

    def busy(self) -> tuple[Floats, Floats]:
        """Until when how many GPUs are busy if all claims were dropped."""
        pinned = self.of(fields.PINNED) > 0.0
        stays = pinned | ((self.of(fields.STAYS) > 0.0) & ~self._claimed)
        ends_s, _, freed_s = self.times_s
        until_s = np.where(stays, np.where(pinned, FOREVER, ends_s), freed_s)
        size, runs, ends = self.of(fields.SIZE), self._runs, self._ends
        gpus = (self.of(fields.WORKERS) * size)[runs], (self.of(fields.TERMINATING) * size)[ends]
        return np.concatenate([until_s[runs], self.ended_s[ends]]), np.concatenate(gpus)

    def first_to_end(self, many: int) -> tuple[str, ...]:
        """As `Room.first_to_end`."""
        rows = np.flatnonzero(self._runs)
        order = np.lexsort((self._lanes.ranks[rows], self.times_s[1][rows]))[:many]
        return tuple([self._lanes.jobs[row].id for row in rows[order].tolist()])

    def ends(self) -> list[tuple[float, int]]:
        """As `Room.ends`."""
        ends_s, _, freed_s = loops.times_s(
            self._lanes.table, self._lanes.levels("mean"), self._room.forecasts.now
        )
        stops = self.of(fields.STOPPING) > 0.0
        gpus = self.of(fields.WORKERS) * self.of(fields.SIZE)
        found = np.where(stops, freed_s, ends_s)[self._runs]
        return list(zip(found.tolist(), gpus[self._runs].astype(np.int64).tolist(), strict=True))

    def horizon_s(self, claims: Sequence[Claim]) -> float | None:
        """As `Room.horizon_s`; None if one of these is not in the snapshot."""
        rows = self.rows(claims)
        if rows is None:
            return None
        due_s, ends_s = np.array([claim.deadline_s for claim in claims]), self.times_s[0][rows]
        last_s = max(due_s[due_s < FOREVER].max(initial=1.0), 1.0)
        return float(max(last_s, (2.0 * ends_s[ends_s < FOREVER]).max(initial=0.0)))

    def ordered(self, claims: Sequence[Claim], order: Order) -> list[Claim] | None:
        """As `Room.ordered`; None if one of these is not in the snapshot."""
        rows = self.rows(claims)
        if rows is None:
            return None
        goes_on = self._goes_on(rows)
        moves = 2.0 if order is by_deadline else 1.0
        stays = self.of(fields.STAYS)[rows] > 0.0
        first = np.where(goes_on, np.where(stays, 0.0, moves), 2.0)
        ready_s = np.zeros(len(rows))
        awaited = self._room.awaited
        if awaited:
            for at, claim in enumerate(claims):
                if claim.job.id in awaited and not goes_on[at]:
                    first[at], ready_s[at] = 1.0, awaited[claim.job.id]
        keys = *self._keys(claims, rows, order), ready_s, first
        places = np.lexsort((self._lanes.ranks[rows], *keys))
        return [claims[place] for place in places.tolist()]

    def _goes_on(self, rows: Ints) -> Bools:
        found: Bools = self._runs[rows] & (self.of(fields.STOPPING)[rows] == 0.0)
        return found

    def _keys(self, claims: Sequence[Claim], rows: Ints, order: Order) -> tuple[Floats, Floats]:
        """What an order says of each claim but its id, the last key first."""
        due_s = np.array([claim.deadline_s for claim in claims])
        if order is in_turn or order is by_deadline:
            return np.zeros(len(rows)), due_s
        if order is as_planned:
            return due_s, np.where(self._runs[rows], 0.0, self.of(fields.PLANNED_AT)[rows])
        told = [order(claim) for claim in claims]
        return np.array([one[1] for one in told]), np.array([one[0] for one in told])


def columns_of(room: "Room") -> Columns | None:
    """None if a claim is not in the snapshot."""
    rows = room.forecasts.frame.rows([claim.job for claim in room.claims])
    return None if rows is None else Columns(room, rows)
