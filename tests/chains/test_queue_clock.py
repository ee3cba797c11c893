import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from laxity_scheduler.following.chain_loop import ChainLoop, ChainOptions
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.link_outcome import outcome_of_row
from laxity_scheduler.following.link_queue import LinkOutcome, QueueRow
from laxity_scheduler.following.queue_clock import QueueClock
from laxity_scheduler.following.queue_watch import QueueWatch

LIMIT_S = 10_000.0
HOUR_S = 3_600.0


class Room:
    """A queue in memory: each job waits for 600 s. `steady_s` passes; `jump_s` is what its clock adds."""

    def __init__(self) -> None:
        self.steady_s, self.jump_s = 1_000.0, 0.0
        self.jobs: list[QueueRow] = []
        self.submitted: dict[str, float] = {}

    def clock_at(self) -> float:
        return 1e9 + self.steady_s + self.jump_s

    def add(self, name: str) -> str:
        row = QueueRow(name, "PENDING", name, self.clock_at(), None, None, LIMIT_S, 1)
        self.jobs.append(row)
        self.submitted[name] = self.steady_s
        return name

    def advance(self, seconds: float) -> None:
        self.steady_s += seconds
        self.jobs = [self._moved(row) for row in self.jobs]

    def _moved(self, row: QueueRow) -> QueueRow:
        start_s = self.submitted[row.job_id] + 600.0
        state, started_at, ended_at = row.state, row.started_at, row.ended_at
        if state == "PENDING" and self.steady_s >= start_s:
            state, started_at = "RUNNING", self.clock_at() - (self.steady_s - start_s)
        if state == "RUNNING" and started_at and self.clock_at() >= started_at + LIMIT_S:
            state, ended_at = "TIMEOUT", self.clock_at()
        return QueueRow(
            row.job_id, state, row.name, row.submitted_at, started_at, ended_at, LIMIT_S, 1
        )

    def rows(self) -> list[QueueRow]:
        return [row for row in self.jobs if not row.has_ended]

    def past_rows(self) -> tuple[Sequence[QueueRow], str]:
        return [], ""

    def jobs_of(self, link: LinkRecord) -> list[QueueRow]:
        return [row for row in self.jobs if row.job_id == f"link-{link.seq}"]

    def find_started_job(self, link: LinkRecord) -> str:
        return ""

    def trains(self, link: LinkRecord) -> bool:
        return False

    def outcome(self, link: LinkRecord, row: QueueRow | None) -> LinkOutcome:
        assert row is not None
        return outcome_of_row(row, None)

    def is_complete(self) -> bool:
        return False

    def submit(self, link: LinkRecord) -> str:
        assert f"link-{link.seq}" not in self.submitted
        return self.add(f"link-{link.seq}")

    def estimate_start(self) -> float | None:
        return None

    def cancel(self, job_ids: Iterable[str]) -> None:
        assert not list(job_ids)


def watch_of(room: Room, folder: Path) -> QueueWatch:
    return QueueWatch(room, folder, QueueClock(lambda: room.steady_s))


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, 5 * 86_400.0, -5 * 86_400.0])
def test_the_mean_wait_is_the_same_after_the_clock_has_jumped_while_jobs_waited(
    tmp_path: Path, jump_s: float
) -> None:
    room = Room()
    watch = watch_of(room, tmp_path)
    room.add("before")
    watch.look()
    room.advance(700.0)
    room.add("across")
    assert watch.look().mean_wait_s == 600.0

    room.jump_s = jump_s
    room.advance(100.0)
    facts = watch.look()
    assert (facts.jump_s, facts.mean_wait_s) == (jump_s, 600.0)
    room.advance(600.0)
    facts = watch.look()

    assert room.jobs[1].started_at is not None
    assert (facts.jump_s, facts.mean_wait_s) == (0.0, 600.0)


def test_what_was_seen_before_a_jump_is_moved_with_it_when_the_chain_is_started_again(
    tmp_path: Path,
) -> None:
    day_before = {"at": 1e9 - 500.0, "columns": [1.0], "starts": {"a": [1e9 - 500.0, 900.0]}}
    jumped = {"at": 1e9 - 8_000.0, "columns": [2.0], "starts": {}, "jump_s": -8_000.0}
    lines = "".join(json.dumps(line) + "\n" for line in (day_before, jumped))
    (tmp_path / "queue.jsonl").write_text(lines)
    room = Room()
    room.jump_s = -8_600.0

    watch = watch_of(room, tmp_path)

    assert watch.snapshots == [(1e9 - 8_500.0, [1.0]), (1e9 - 8_000.0, [2.0])]
    assert watch.look().mean_wait_s == 900.0


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, 5 * 86_400.0, -5 * 86_400.0])
def test_a_jump_while_nobody_followed_the_chain_is_seen_at_the_next_start(
    tmp_path: Path, jump_s: float
) -> None:
    room = Room()
    room.add("before")
    room.advance(700.0)
    room.add("across")
    first = QueueWatch(room, tmp_path, QueueClock(lambda: room.steady_s, "boot 1"))
    first.record(first.look(), 1, submits=False, reason="")

    room.jump_s = jump_s
    room.advance(100.0)
    second = QueueWatch(room, tmp_path, QueueClock(lambda: room.steady_s, "boot 1"))
    facts = second.look()
    assert (facts.jump_s, facts.mean_wait_s) == (jump_s, 600.0)
    room.advance(600.0)

    assert room.jobs[1].started_at is not None
    assert second.look().mean_wait_s == 600.0


def test_what_an_earlier_start_of_the_machine_wrote_down_tells_of_no_jump(tmp_path: Path) -> None:
    room = Room()
    first = QueueWatch(room, tmp_path, QueueClock(lambda: room.steady_s, "boot 1"))
    first.record(first.look(), 1, submits=False, reason="")
    room.steady_s = 5.0

    second = QueueWatch(room, tmp_path, QueueClock(lambda: room.steady_s, "boot 2"))

    assert second.look().jump_s == 0.0


def test_slow_answers_are_no_jump() -> None:
    steady = iter([0.0, 600.0, 1_200.0])
    clock = QueueClock(lambda: next(steady))

    assert [clock.jump_s(at) for at in (50.0, 700.0, 1_180.0)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("jump_s", [2 * HOUR_S, -2 * HOUR_S, 30 * 86_400.0])
def test_a_chain_goes_on_link_by_link_and_says_so_when_the_clock_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    room, words = Room(), list[str]()
    monkeypatch.setattr("time.monotonic", lambda: room.steady_s)
    state = ChainState("abc")
    clock = QueueClock(lambda: room.steady_s)
    options = ChainOptions("average_now", 600.0, most_links=3)
    loop = ChainLoop(state, tmp_path, room, options, words.append, clock=clock)

    for step in range(5_000):
        if step == 100:
            room.jump_s = jump_s
        loop.step()
        if state.ended:
            break
        room.advance(30.0)

    assert state.ended == "capped"
    assert [link.outcome for link in state.links] == ["reached its time limit"] * 3
    assert sum("clock has jumped" in line for line in words) == 1
    last = state.links[2]
    assert last.submitted_at is not None
    assert state.links[1].ended_at is not None
    assert math.isclose(state.links[1].ended_at - last.submitted_at, 600.0, abs_tol=660.0)
