import threading
from collections.abc import Iterator
from typing import cast

import pytest

from examples.demo.job_poller import JobPoller, StoryError
from laxity.api.client import Client, JobView, ServiceAwayError
from laxity.cli.exit_codes import CommandError


class Looks:
    """A service whose job is one epoch further at every look."""

    def __init__(self, *, away: int = 0) -> None:
        self.away = away
        self.done = 0

    def jobs(self) -> list[JobView]:
        if self.away:
            self.away -= 1
            raise ServiceAwayError("gone for a moment")
        self.done += 1
        return [JobView("default/train", epochs_done=self.done)]


def watching(looks: Looks, *, broken: str = "") -> JobPoller:
    def check() -> None:
        if broken:
            raise CommandError(broken)

    watch = JobPoller(cast("Client", looks), check, lambda _: None, lambda *_: None)
    watch.start()
    return watch


@pytest.fixture
def watches() -> Iterator[list[JobPoller]]:
    opened: list[JobPoller] = []
    yield opened
    for watch in opened:
        watch.stop()


def test_waiting_ends_as_soon_as_it_is_so(watches: list[JobPoller]) -> None:
    watches.append(watching(Looks()))

    watches[0].until(
        "two", lambda jobs: jobs["default/train"].epochs_done >= 2 if jobs else False, limit_s=20
    )

    assert watches[0].jobs["default/train"].epochs_done >= 2


def test_what_does_not_happen_in_time_is_named(watches: list[JobPoller]) -> None:
    watches.append(watching(Looks()))

    with pytest.raises(StoryError, match="it grows: not within 0 s"):
        watches[0].until("it grows", lambda _: False, limit_s=0.1)


def test_a_service_that_is_away_for_a_moment_is_asked_again(watches: list[JobPoller]) -> None:
    watches.append(watching(Looks(away=2)))

    watches[0].until("a job", bool, limit_s=20)

    assert watches[0].jobs


def test_a_stage_that_falls_down_ends_the_waiting_at_once(watches: list[JobPoller]) -> None:
    watches.append(watching(Looks(), broken="service ended with status 1"))

    with pytest.raises(CommandError, match="ended with status 1"):
        watches[0].until("anything", lambda _: False, limit_s=60)


def test_every_change_is_told_once() -> None:
    told: list[tuple[int | None, int]] = []
    enough = threading.Event()

    def on_change(before: JobView | None, job: JobView) -> None:
        told.append((before.epochs_done if before else None, job.epochs_done))
        if len(told) == 3:
            enough.set()

    watch = JobPoller(cast("Client", Looks()), lambda: None, lambda _: None, on_change)
    watch.start()
    assert enough.wait(20)
    watch.stop()

    assert told[:3] == [(None, 1), (1, 2), (2, 3)]
