"""Shares of thousands of claims, each made when it is asked for, and what they say as columns."""

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple, Protocol

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.promising.reserve import Share

MOST: Final = 1 << 32  # places in a table
NONE: Final = (-1, FOREVER)  # workers and end of no share


class Outline(NamedTuple):
    """n shares: what `Share` says of itself; without a share, widths are -1."""

    starts_s: Floats
    workers: Ints
    workers_now: Ints
    widest: Ints
    finish_s: Floats
    due_width: Ints  # the widest that is planned up to some instant

    def at(self, places: Ints) -> "Outline":
        widths = self.workers[places], self.workers_now[places], self.widest[places]
        return Outline(
            self.starts_s[places], *widths, self.finish_s[places], self.due_width[places]
        )


class Table(Protocol):
    """Shares by place."""

    def share(self, place: int) -> Share: ...

    def outline(self, due_s: float) -> Outline: ...


class LazyShares(dict[str, Share]):
    """Shares by job. `plain` ones have one width to the end; `planned` ones a place in a table."""

    def __init__(self) -> None:
        super().__init__()
        self.plain: dict[str, tuple[int, float]] = {}
        self.planned: dict[str, int] = {}  # number of the table times MOST, and the place in it
        self._tables: list[Table] = []
        self._given: set[str] = set()  # shares as such, in neither

    def plan(self, names: Sequence[str], table: Table, first: int = 0) -> None:
        """They are in this table, from that place on."""
        if not self._tables or self._tables[-1] is not table:
            self._tables.append(table)
        first += (len(self._tables) - 1) * MOST
        self.planned.update(zip(names, range(first, first + len(names)), strict=True))

    def get(self, key: str, default: Share | None = None) -> Share | None:  # type: ignore[override]
        share = super().get(key)
        if share is None and (key in self.plain or key in self.planned):
            return self[key]
        return default if share is None else share

    def names(self) -> set[str]:
        """All that have a share."""
        return {*self.keys(), *self.plain, *self.planned}

    def outline(self, names: Sequence[str], *, due_s: float = 0.0) -> Outline:
        """Of these jobs; what is planned up to `due_s` from now counts as due."""
        plain = zip(*map(self.plain.get, names, repeat(NONE)), strict=True)
        workers, ends_s = plain if names else ((), ())
        width, finish_s = np.array(workers, dtype=np.int64), np.array(ends_s, dtype=np.float64)
        starts_s = np.where(width >= 0, 0.0, FOREVER)
        widths = width.copy(), width.copy(), width.copy()
        outline = Outline(starts_s, *widths, finish_s, width)
        if self.planned:
            self._plan_tables(names, outline, due_s)
        if self._given:
            self._others(names, outline, due_s)
        return outline

    def _plan_tables(self, names: Sequence[str], found: Outline, due_s: float) -> None:
        places = np.array(list(map(self.planned.get, names, repeat(-1))), dtype=np.int64)
        for number, table in enumerate(self._tables):
            mine = np.flatnonzero(places // MOST == number)
            of = table.outline(due_s).at(places[mine] % MOST)
            for column, values in zip(found, of, strict=True):
                column[mine] = values

    def _others(self, names: Sequence[str], found: Outline, due_s: float) -> None:
        for row, name in enumerate(names):
            if name not in self._given:
                continue
            share = self[name]
            due = max((width for at_s, width in share.steps if at_s <= due_s), default=0)
            values = share.starts_s, share.workers, share.workers_now, share.widest, share.finish_s
            for column, value in zip(found, (*values, due), strict=True):
                column[row] = value

    def __setitem__(self, key: str, share: Share) -> None:
        self._given.add(key)
        super().__setitem__(key, share)

    def __contains__(self, key: object) -> bool:
        return key in self.plain or key in self.planned or super().__contains__(key)

    def __missing__(self, key: str) -> Share:
        plain = self.plain.get(key)
        if plain is not None:
            workers, finish_s = plain
            made = Share(((0.0, workers),), finish_s)
        else:
            number, row = divmod(self.planned[key], MOST)
            made = self._tables[number].share(row)
        super().__setitem__(key, made)
        return made
