"""The widths that promised jobs must have, whatever a net would rather do (algorithms.md 6).

A net, or the teacher that decides in its place, deals out what is above the floors and fits beside the
plans that promises rest on, so a promise that can be kept is not broken by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from laxity_scheduler.allocation.purse import Purse
from laxity_scheduler.allocation.surplus import TEACHERS, budget_of_jobs, resizable_jobs
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job


class PromisePlans(Protocol):
    """Floors of promised jobs by id, in the order in which they get them; who fits beside the plans."""

    @property
    def floors(self) -> Mapping[str, int]: ...

    def fits(self, job: Job, workers: int) -> bool: ...

    def take(self, job: Job, workers: int) -> None: ...


class GuardedPurse:
    """GPUs that jobs share, as far as no promise needs them."""

    def __init__(self, purse: Purse, plans: PromisePlans) -> None:
        self._purse, self._plans = purse, plans
        self._floors: dict[str, int] = {}

    def take(self, job: Job, before: int, workers: int) -> bool:
        """So many workers instead of `before`, if there is room; a floor has been taken already."""
        if not before and self._floors.get(job.id) == workers:
            return True
        return self._plans.fits(job, workers) and self._spend(job, before, workers)

    def take_floor(self, job: Job, widths: Sequence[int], floor: int) -> int:
        """The width of these that is wide enough, or the widest below it that fits; 0 if none does.

        The plan has reserved the floor itself, up to its last epoch's end; its last save may overlap.
        """
        for width in reversed(widths[: _place_of(floor, widths) + 1]):
            is_planned = width == floor or self._plans.fits(job, width)
            if is_planned and self._spend(job, 0, width):
                self._floors[job.id] = width
                return width
        return 0

    def _spend(self, job: Job, before: int, workers: int) -> bool:
        if not self._purse.take(job, before, workers):
            return False
        self._plans.take(job, workers)
        return True


@dataclass(frozen=True, slots=True)
class Surplus:
    """What may be dealt out: jobs with floors first, the floors that they have, and the rest of the GPUs.

    `gpus` are those of all these jobs together, floors included.
    """

    jobs: Sequence[Job]
    floors: Mapping[str, int]
    purse: GuardedPurse
    gpus: int


def open_surplus(state: ClusterState, forecasts: Forecasts, plans: PromisePlans) -> Surplus:
    """Each promised job has its floor, or the widest width below it that fits."""
    jobs = _sort_floors_first(resizable_jobs(state), plans.floors)
    budget = budget_of_jobs(state, jobs)
    gpus, purse = budget.whole, GuardedPurse(budget, plans)
    floors = {
        job.id: purse.take_floor(job, forecasts.curve(job).widths, plans.floors[job.id])
        for job in jobs
        if job.id in plans.floors
    }
    return Surplus(jobs, {job: width for job, width in floors.items() if width}, purse, gpus)


def deal_as_teacher(
    teacher: str, state: ClusterState, forecasts: Forecasts, plans: PromisePlans
) -> tuple[Sequence[Job], dict[str, int]]:
    """Jobs, those with floors first, and their workers (absent: none) by a teacher's rule above floors."""
    surplus = open_surplus(state, forecasts, plans)
    return surplus.jobs, TEACHERS[teacher](surplus.jobs, surplus.purse, forecasts, surplus.floors)


def _sort_floors_first(jobs: Sequence[Job], floors: Mapping[str, int]) -> list[Job]:
    """Jobs with a floor, in the order of `floors`, then all others as they are."""
    place = {job: number for number, job in enumerate(floors)}
    return sorted(jobs, key=lambda job: place.get(job.id, len(place)))


def _place_of(floor: int, widths: Sequence[int]) -> int:
    """Of the first width that is wide enough; of the last one if none is."""
    return next((place for place, width in enumerate(widths) if width >= floor), len(widths) - 1)
