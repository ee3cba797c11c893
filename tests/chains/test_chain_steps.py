"""One step of a chain, where a signal or the end of a link comes in the middle of it."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from laxity_scheduler.following.chain_loop import ChainLoop, ChainOptions, defer_signals
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.link_outcome import outcome_of_row
from laxity_scheduler.following.link_queue import (
    LinkOutcome,
    QueueFullError,
    QueueRefusalError,
    QueueRow,
)
from tests.chains.test_queue_clock import LIMIT_S, Room


def test_a_signal_that_another_thread_takes_waits_for_the_end_of_a_submission() -> None:
    is_over, submitted = threading.Event(), list[str]()
    other = threading.Thread(target=is_over.wait)  # it blocks no signal
    other.start()

    def submit() -> None:
        with defer_signals():
            os.kill(os.getpid(), signal.SIGINT)
            subprocess.run(["true"], check=True)
            submitted.append("a job")

    try:
        with pytest.raises(KeyboardInterrupt):
            submit()
    finally:
        is_over.set()
        other.join()

    assert submitted == ["a job"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class LastMoment(Room):
    """After its next answer both links have failed: the second one, since the first had."""

    def jobs_of(self, link: LinkRecord) -> list[QueueRow]:
        rows = super().jobs_of(link)
        self.jobs = [replace(row, state="FAILED", ended_at=self.clock_at()) for row in self.jobs]
        return rows

    def outcome(self, link: LinkRecord, row: QueueRow | None) -> LinkOutcome:
        assert row is not None
        return outcome_of_row(row, 3 if link.seq == 1 else 1)

    def cancel(self, job_ids: Iterable[str]) -> None:
        assert set(job_ids) <= {"link-2"}


def test_a_chain_ends_with_the_first_failure_where_both_links_fail_between_two_answers(
    tmp_path: Path,
) -> None:
    queue, state = LastMoment(), ChainState("abc")
    state.links = [LinkRecord(1, "link-1"), LinkRecord(2, "link-2")]
    for link in state.links:
        queue.add(link.job_id)
    queue.advance(700.0)  # both have started

    ChainLoop(state, tmp_path, queue, ChainOptions("reactive", 1.0), print).step()

    assert state.ended == "failed"
    assert state.reason == "link 1 (job link-1) failed with exit code 3"


class QueuedAgain(Room):
    """The first link waits again, and the second one has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled: list[str] = []

    def outcome(self, link: LinkRecord, row: QueueRow | None) -> LinkOutcome:
        assert row is not None
        return outcome_of_row(row, 1)

    def cancel(self, job_ids: Iterable[str]) -> None:
        self.cancelled += job_ids


def test_a_link_that_waits_again_does_not_stay_behind_a_chain_that_has_ended(
    tmp_path: Path,
) -> None:
    queue, state = QueuedAgain(), ChainState("abc")
    state.links = [LinkRecord(1, "link-1"), LinkRecord(2, "link-2")]
    queue.add("link-2")
    queue.advance(700.0)
    queue.jobs = [replace(row, state="FAILED", ended_at=queue.clock_at()) for row in queue.jobs]
    queue.add("link-1")

    ChainLoop(state, tmp_path, queue, ChainOptions("reactive", 1.0), print).step()

    assert state.reason == "link 2 (job link-2) failed with exit code 1"
    assert queue.cancelled == ["link-1"]
    assert state.active == []


class Refusing(Room):
    """The first link trains, or has ended; each submission is refused with the next error."""

    def __init__(self, error: QueueRefusalError) -> None:
        super().__init__()
        self.error, self.asked = error, 0

    def outcome(self, link: LinkRecord, row: QueueRow | None) -> LinkOutcome:
        assert row is not None
        return outcome_of_row(row, 0)

    def submit(self, link: LinkRecord) -> str:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "asked", "ended"),
    [
        pytest.param(QueueRefusalError("not there"), 8 + 5, "failed", id="refused"),
        pytest.param(QueueFullError("AssocMaxSubmitJobLimit"), 8 + 8, "", id="full"),
    ],
)
def test_refusals_beside_a_link_that_trains_do_not_end_its_chain_and_a_full_queue_never_does(
    tmp_path: Path, error: QueueRefusalError, asked: int, ended: str
) -> None:
    queue, state = Refusing(error), ChainState("abc")
    state.links = [LinkRecord(1, "link-1"), LinkRecord(2)]
    queue.add("link-1")
    queue.advance(700.0)  # it has started
    loop = ChainLoop(state, tmp_path, queue, ChainOptions("reactive", 0.0), print)

    for _ in range(8):
        loop.step()
    assert (queue.asked, state.ended) == (8, "")
    queue.advance(LIMIT_S)
    for _ in range(8):
        if not state.ended:
            loop.step()

    assert (queue.asked, state.ended) == (asked, ended)
    told = [event for event in state.events if "refused, to be tried again" in event.reason]
    assert len(told) == (8 + 4 if ended else 2)  # a full queue once beside each link
