"""The widths that promised jobs must have, whatever a net would rather do (algorithms.md 6).

The net deals out what is above the floors and fits beside the plans that promises rest on, so a
promise that can be kept is not broken by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from laxity_scheduler.learned.job_features import JobNumbers
from laxity_scheduler.model.job import Job
from laxity_scheduler.promising.regions import Purse


class PromisePlans(Protocol):
    """Floors of promised jobs by id, in the order in which they get them; who fits beside the plans."""

    @property
    def floors(self) -> Mapping[str, int]: ...

    def fits(self, job: Job, workers: int) -> bool: ...

    def take(self, job: Job, workers: int) -> None: ...


class GuardedPurse:
    """GPUs that jobs share, as far as no promise needs them. Jobs come with those of floors first."""

    def __init__(self, purse: Purse, plans: PromisePlans) -> None:
        self._purse, self._plans = purse, plans
        self._given: dict[str, int] = {}

    def give_floors(self, jobs: Sequence[Job], numbers: Sequence[JobNumbers]) -> list[JobNumbers]:
        """Each promised job's floor, or the widest below it that fits; no width below that is left."""
        floors = self._plans.floors
        return [
            self._give_floor(job, each, floors[job.id]) if job.id in floors else each
            for job, each in zip(jobs, numbers, strict=True)
        ]

    def take(self, job: Job, before: int, workers: int) -> bool:
        """So many workers instead of `before`, if there is room; a floor has been taken already."""
        if not before and self._given.get(job.id) == workers:
            return True
        if not self._plans.fits(job, workers) or not self._purse.take(job, before, workers):
            return False
        self._plans.take(job, workers)
        return True

    def _give_floor(self, job: Job, numbers: JobNumbers, floor: int) -> JobNumbers:
        widths = numbers.widths
        for place in range(_place_of(floor, widths), -1, -1):
            if self.take(job, 0, widths[place]):
                self._given[job.id] = widths[place]
                return replace(numbers, widths=widths[place:], rest_s=numbers.rest_s[place:])
        return numbers


def sort_floors_first(jobs: Sequence[Job], floors: Mapping[str, int]) -> list[Job]:
    """Jobs with a floor, in the order of `floors`, then all others as they are."""
    place = {job: number for number, job in enumerate(floors)}
    return sorted(jobs, key=lambda job: place.get(job.id, len(place)))


def _place_of(floor: int, widths: Sequence[int]) -> int:
    """Of the first width that is wide enough; of the last one if none is."""
    return next((place for place, width in enumerate(widths) if width >= floor), len(widths) - 1)
