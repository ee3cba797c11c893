"""Claims as they are kept, as columns, to plan all of them anew on a profile that shows more.

Claims are only ever added to those that are kept, so what was read of one is not read again.
"""

from collections.abc import Sequence

import numpy as np

from laxity_scheduler.promising.claimants import Held
from laxity_scheduler.promising.planner import Plans
from laxity_scheduler.promising.reserve import Claim, Profile
from laxity_scheduler.promising.room import Room
from laxity_scheduler.promising.share_table import ShareTable


class KeptClaims:
    """Claims with their shares; both may grow."""

    def __init__(self, room: Room, claims: Sequence[Claim], shares: ShareTable) -> None:
        self._room, self._claims, self._shares = room, claims, shares
        self._names: list[str] = []
        self._rows = np.zeros(0, dtype=np.int64)
        self._due_s, self._starts_s = np.zeros(0), np.zeros(0)

    def take_out(self, profile: Profile) -> None:
        """Plan them one after the other, as they are planned to start now, on this profile."""
        self._read_new()
        room, jobs = self._room, [claim.job for claim in self._claims]
        keys = self._starts_s, self._due_s
        order = room.rows.order_places(self._rows, self._names, keys, room.awaited, makes_way=False)
        held = Held(*[column[order] for column in room.find_held(self._claims)])
        plans = Plans(room.planner, jobs, self._rows)
        room.planner.plan_in_order(plans, order, self._due_s[order], held, profile, stay=False)

    def _read_new(self) -> None:
        new = self._claims[len(self._names) :]
        names = [claim.job.id for claim in new]
        rows = self._room.forecasts.frame.row_numbers([claim.job for claim in new])
        self._rows = np.append(self._rows, rows)
        self._due_s = np.append(self._due_s, [claim.deadline_s for claim in new])
        self._starts_s = np.append(self._starts_s, self._shares.rows_of(names).starts_s)
        self._names += names
