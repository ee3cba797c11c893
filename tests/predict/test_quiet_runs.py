"""Runs in which nothing happens raise no alarm; in one that hangs, a stall is told."""

import random
from collections.abc import Iterator

import pytest

from laxity_profiler.estimate import Progress
from laxity_profiler.overhead.costs import fit_costs
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.views.stalling import epoch_limit_s
from tests.predict.test_kinds_of_run import RULES, N, learn, make_run
from tests.support.builders import job

UNIT_S = 300.0
SPARE = 1.5  # of the P90 that is said at the start, until the deadline


def running(times_s: list[float], done: int) -> Job:
    """A job whose first epoch was a warm-up, after so many epochs."""
    seen = tuple(times_s[1:done])
    return job("a", running=1, epochs=N, progress=Progress(done, seen, (1,) * len(seen)))


def quiet_runs(worlds: int) -> Iterator[tuple[str, HistoryPredictor, list[float]]]:
    """Of each kind: what two to four runs taught, and how long the epochs of the next one took."""
    for kind, rule in RULES.items():
        for world in range(worlds):
            known = 2 + world % 3
            *past, run = [make_run(rule, world, n, 0.05, unit_s=UNIT_S) for n in range(known + 1)]
            warm_up_s = [max(0.0, row.epochs[0].epoch_s - row.epochs[1].epoch_s) for row in past]
            costs = fit_costs([], warm_up_s={"mlp": warm_up_s})
            times_s = [epoch.epoch_s for epoch in run.epochs]
            yield kind, HistoryPredictor((learn(past),), costs), times_s


def alarms(predictor: HistoryPredictor, times_s: list[float]) -> list[str]:
    """Those of a run whose deadline leaves half of its P90 to spare; its first epoch has begun."""
    first = min(times_s[:2])
    deadline_s = (
        SPARE * predictor.remaining(running(times_s, 0).workload, Progress(0, (), ()), 1).p90_s
    )
    told, now = [], 0.0
    for done, took_s in enumerate([first, *times_s[1:]]):
        row = running(times_s, done)
        if now + predictor.remaining(row.workload, row.progress, 1).p90_s > deadline_s:
            told.append(f"in danger after {done}")
        limit_s, _ = epoch_limit_s(row, predictor)
        if times_s[done] > limit_s:
            told.append(f"stalled in {done + 1}")
        now += took_s
    return told


def test_quiet_runs_raise_no_alarm() -> None:
    assert [told for _, known, run in quiet_runs(6) if (told := alarms(known, run))] == []


@pytest.mark.soak
def test_a_thousand_quiet_runs_raise_no_alarm() -> None:
    assert [
        (kind, told) for kind, known, run in quiet_runs(125) if (told := alarms(known, run))
    ] == []


def test_a_hang_is_told_after_six_units() -> None:
    draw = random.Random(1)
    for _, predictor, times_s in quiet_runs(6):
        done = draw.randrange(3, N)
        row = running(times_s, done)
        longest_s = max(times_s[1:])

        limit_s, _ = epoch_limit_s(row, predictor)

        assert limit_s <= 2.0 * 6.0 * longest_s + predictor.resume_cost(row.workload, 1).p90_s
