"""The widths that promised jobs must have now, whatever a net would rather do (algorithms.md 6).

The net deals out what is above the floors, so a promise that can be kept is not broken by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from laxity_scheduler.learned.job_features import JobNumbers
from laxity_scheduler.model.job import Job


def sort_floors_first(jobs: Sequence[Job], floors: Mapping[str, int]) -> list[Job]:
    """Jobs with a floor, in the order of `floors`, then all others as they are."""
    place = {job: number for number, job in enumerate(floors)}
    return sorted(jobs, key=lambda job: place.get(job.id, len(place)))


def raise_least_widths(
    jobs: Sequence[Job], numbers: Sequence[JobNumbers], floors: Mapping[str, int], gpus: int
) -> tuple[list[JobNumbers], int]:
    """Without the widths below a floor, as far as these GPUs suffice; how many GPUs floors lack then.

    They lack some while jobs that must make room have yet to end an epoch.
    """
    raised, short_gpus = [], 0
    for job, each in zip(jobs, numbers, strict=True):
        if job.id not in floors:
            raised.append(each)
            continue
        wanted = _place_of(floors[job.id], each.widths)
        place = wanted
        while place and each.widths[place] * each.gpus_per_worker > gpus:
            place -= 1
        gpus -= each.widths[place] * each.gpus_per_worker
        short_gpus += (each.widths[wanted] - each.widths[place]) * each.gpus_per_worker
        raised.append(replace(each, widths=each.widths[place:], rest_s=each.rest_s[place:]))
    return raised, short_gpus


def _place_of(floor: int, widths: Sequence[int]) -> int:
    """Of the first width that is wide enough; of the last one if none is."""
    return next((place for place, width in enumerate(widths) if width >= floor), len(widths) - 1)
