"""GPUs that others gave for a job that waits: its own until it starts, and nobody else's meanwhile."""

from collections.abc import Sequence

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState, Hold
from laxity_scheduler.promising.claimants import Held, hold_nothing
from laxity_scheduler.promising.claims import Claims, hold_s
from laxity_scheduler.promising.regions import Region
from laxity_scheduler.promising.reserve import Profile, add_gpus


class HeldGpus:
    """The holds of a snapshot, beside the jobs with a claim."""

    def __init__(
        self,
        state: ClusterState,
        forecasts: Forecasts,
        claimed: frozenset[str],
        regions: Sequence[Region],
        *,
        parts: int,
        whole_parts: Sequence[int],
    ) -> None:
        """Of a profile of so many parts; on the `whole_parts` all GPUs are counted."""
        self._state, self._forecasts, self._regions = state, forecasts, regions
        self._parts, self._whole_parts = parts, whole_parts
        self.in_force: Sequence[Hold] = [one for one in state.holds if one.until_at > state.now]
        self.unclaimed: Sequence[Hold] = [one for one in self.in_force if one.job not in claimed]

    @property
    def drain_s(self) -> float:
        """When all jobs without a claim that start on what is held for them can be stopped again."""
        names = [hold.job for hold in self.unclaimed if hold.job in self._state.by_id]
        jobs = [job for job in map(self._state.by_id.__getitem__, names) if job.preemptible]
        of = self._forecasts
        return max([hold_s(of, job, of.curve(job).least) for job in jobs], default=0.0)

    @property
    def unmoving_gpus(self) -> int:
        """What is held for jobs without a claim that cannot be stopped once they have started."""
        by_id = self._state.by_id
        return sum(
            hold.gpus
            for hold in self.unclaimed
            if hold.job in by_id and not by_id[hold.job].preemptible
        )

    def find(self, claims: Claims) -> Held:
        """What is held for jobs of these claims that wait."""
        held = hold_nothing(len(claims.rows), self._parts)
        place_of = {name: place for place, name in enumerate(claims.names) if self.in_force}
        for hold in self.in_force:
            place = place_of.get(hold.job)
            if place is None or claims.jobs[place].workers:
                continue
            held.until_s[place] = max(held.until_s[place], hold.until_at - self._state.now)
            held.gpus[place] += self._on_parts(hold)
        return held

    def free_unclaimed(self, profile: Profile, claims: Claims) -> None:
        """What is held for jobs without a claim, which start on it, is no claim's."""
        names = frozenset(claims.names if self.in_force else ())
        for hold in self.in_force:
            if hold.job not in names:
                add_gpus(profile, 0.0, hold.until_at - self._state.now, self._on_parts(hold))

    def _on_parts(self, hold: Hold) -> Floats:
        gpus = np.zeros(self._parts)
        gpus[list(self._whole_parts)] = hold.gpus
        for part, region in enumerate(self._regions, 1):
            gpus[part] = hold.gpus * (hold.node in region.nodes)
        return gpus
