"""Shares of thousands of claims as one table, a row each; a `Share` is made when somebody asks for it."""

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.promising.reserve import Share


class ShareColumns(NamedTuple):
    """n shares, and what `Share` says of itself, of all; who has none has -1 workers, and never starts."""

    from_s: Floats  # (n, K): steps; those of 0 workers at the end are none
    widths: Ints  # (n, K)
    finish_s: Floats  # (n,)
    seats: Floats  # (n, P); no parts where nobody asked for seats

    def at(self, places: Ints) -> "ShareColumns":
        return ShareColumns._make([column[places] for column in self])

    @property
    def workers_now(self) -> Ints:
        widths: Ints = self.widths[:, 0]
        return widths

    @property
    def workers(self) -> Ints:
        widths: Ints = self.widths[self._starts]
        return widths

    @property
    def widest(self) -> Ints:
        return self.widest_by(FOREVER)

    def widest_by(self, due_s: float) -> Ints:
        """The widest that is planned up to this many seconds from now."""
        widths: Ints = np.where(self.from_s <= due_s, self.widths, 0).max(axis=1)
        return widths

    @property
    def starts_s(self) -> Floats:
        starts_s: Floats = self.from_s[self._starts]
        return starts_s

    @property
    def _starts(self) -> tuple[Ints, Ints]:
        """Rows, and the first step of each that has workers."""
        return np.arange(len(self.widths)), (self.widths != 0).argmax(axis=1)


NONE: Final = ShareColumns(
    np.full((1, 1), FOREVER), np.full((1, 1), -1), np.full(1, FOREVER), np.zeros((1, 0))
)


class ShareTable:
    """Shares by job id. Rows are only ever added; the first is that of who has none."""

    def __init__(self) -> None:
        self._rows = NONE
        self._new: list[ShareColumns] = []  # not in the rows yet
        self._place: dict[str, int] = {}
        self._shares: dict[str, Share] = {}  # those that were asked for

    def add_rows(self, names: Sequence[str], rows: ShareColumns) -> None:
        """The shares of these jobs, which had none."""
        first = 1 + len(self._place)
        self._place.update(zip(names, range(first, first + len(names)), strict=True))
        self._new.append(rows)

    def add_widths(self, names: Sequence[str], workers: Ints, finish_s: Floats) -> None:
        """Of jobs that have so many workers from now to their end."""
        from_s, seats = np.zeros((len(names), 1)), np.zeros((len(names), 0))
        self.add_rows(names, ShareColumns(from_s, workers[:, None], finish_s, seats))

    def add(self, name: str, share: Share) -> None:
        from_s = np.array([[at_s for at_s, _ in share.steps]])
        widths = np.array([[workers for _, workers in share.steps]])
        finish_s, seats = np.array([share.finish_s]), np.array([share.seats], dtype=np.float64)
        self.add_rows([name], ShareColumns(from_s, widths, finish_s, seats))

    def __contains__(self, name: str) -> bool:
        return name in self._place

    def get(self, name: str) -> Share | None:
        return self[name] if name in self._place else None

    def __getitem__(self, name: str) -> Share:
        if name not in self._shares:
            place, rows = self._place[name], self._all_rows()
            count = int(rows.widths[place].nonzero()[0][-1]) + 1
            steps = zip(rows.from_s[place].tolist(), rows.widths[place].tolist(), strict=True)
            seats = tuple(rows.seats[place].tolist())
            share = Share(tuple(steps)[:count], float(rows.finish_s[place]), seats)
            self._shares[name] = share
        return self._shares[name]

    def rows_of(self, names: Sequence[str]) -> ShareColumns:
        places = np.array(list(map(self._place.get, names, repeat(0))), dtype=np.int64)
        return self._all_rows().at(places)

    def _all_rows(self) -> ShareColumns:
        if self._new:
            self._rows = _stack([self._rows, *self._new])
            self._new.clear()
        return self._rows


def _stack(blocks: Sequence[ShareColumns]) -> ShareColumns:
    """One block after the other, with as many steps and parts as the block that has most."""
    count = sum(len(block.finish_s) for block in blocks)
    steps = max(block.widths.shape[1] for block in blocks)
    from_s, widths = np.zeros((count, steps)), np.zeros((count, steps), dtype=np.int64)
    seats = np.zeros((count, max(block.seats.shape[1] for block in blocks)))
    rows, end = ShareColumns(from_s, widths, np.zeros(count), seats), 0
    for block in blocks:
        begin, end = end, end + len(block.finish_s)
        for column, values in zip(rows, block, strict=True):
            column[(slice(begin, end), *map(slice, values.shape[1:]))] = values
    return rows
