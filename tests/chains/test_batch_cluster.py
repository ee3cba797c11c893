"""The simulated batch cluster: its order, its backfill, where it starts, and its forks."""

import math

import numpy as np
import pytest

from laxity_lab.batch_queue.batch_cluster import BatchCluster, open_cluster
from laxity_lab.batch_queue.queue_log import BatchJob, QueueLog
from laxity_scheduler.chains.queue_plan import FREE, PENDING
from tests.chains.minute_by_minute import PlainCluster, Row

HOUR_S = 3_600.0


def job(
    name: str, submit_h: float, run_h: float, nodes: int, *, limit_h: float = 48, wait_h: float = 0
) -> BatchJob:
    start_h = submit_h + wait_h
    times_s = [HOUR_S * hours for hours in (submit_h, start_h, start_h + run_h, limit_h)]
    return BatchJob(name, times_s[0], times_s[1], times_s[2], times_s[3], nodes)


def log_of(*jobs: BatchJob) -> QueueLog:
    return QueueLog("log", tuple(sorted(jobs, key=lambda job: job.submitted_at)))


def start_hours(cluster: BatchCluster, count: int) -> list[float]:
    cluster.run_until(1_000 * HOUR_S)
    return [cluster.start_at(row) / HOUR_S for row in range(count)]


def random_log(seed: int, count: int) -> QueueLog:
    random = np.random.default_rng(seed)
    jobs = []
    for number, submitted_at in enumerate(np.sort(random.integers(0, 40_000, count))):
        run_s = float(random.integers(0, 9_000))
        limit_s = 60.0 * float(random.integers(1, 200))
        start = float(submitted_at)
        nodes = int(random.integers(1, 9))
        jobs.append(BatchJob(str(number), start, start, start + run_s, limit_s, nodes))
    return QueueLog("random", tuple(jobs))


@pytest.mark.parametrize("seed", range(8))
def test_events_give_the_same_starts_as_minute_by_minute(seed: int) -> None:
    log = random_log(seed, 80)
    plain = PlainCluster(
        16, [Row(job, int(job.submitted_at // 60), n) for n, job in enumerate(log.jobs)]
    ).starts(4_000)
    cluster = open_cluster(log, 0.0, 16, start="empty")
    cluster.run_until(60 * 4_000.0)
    ours = {job.id: cluster.start_at(row) / 60 for row, job in enumerate(log.jobs)}
    assert ours == {name: math.inf if start is None else start for name, start in plain.items()}
    assert max(wait_s for wait_s in cluster.waits()[1]) > HOUR_S  # the queue is not empty


def test_short_job_is_backfilled_before_a_larger_one_that_waits() -> None:
    log = log_of(job("runs", 0, 5, 6), job("large", 1, 1, 8), job("short", 2, 1, 2, limit_h=2))
    cluster = open_cluster(log, 0.0, 8, start="empty")
    assert start_hours(cluster, 3) == [0.0, 5.0, 2.0]


def test_long_job_does_not_delay_the_plan_of_a_larger_one() -> None:
    log = log_of(
        job("runs", 0, 5, 6, limit_h=5), job("large", 1, 1, 8, limit_h=1), job("long", 2, 9, 2)
    )
    cluster = open_cluster(log, 0.0, 8, start="empty")
    assert start_hours(cluster, 3) == [0.0, 5.0, 6.0]


def test_job_is_ended_at_its_time_limit() -> None:
    log = log_of(job("overruns", 0, 9, 8, limit_h=2), job("next", 1, 1, 8))
    cluster = open_cluster(log, 0.0, 8, start="empty")
    assert start_hours(cluster, 2) == [0.0, 2.0]


def test_larger_job_goes_before_smaller_ones_of_the_same_age() -> None:
    log = log_of(job("runs", 0, 1, 8), job("small", 0.5, 1, 2), job("large", 0.5, 1, 7))
    cluster = open_cluster(log, 0.0, 8, start="empty")
    assert start_hours(cluster, 3) == [0.0, 2.0, 1.0]


def test_running_start_holds_the_nodes_of_jobs_that_ran_and_the_queue_that_waited() -> None:
    log = log_of(
        job("ended", 0, 1, 8),
        job("runs", 1, 10, 8),
        job("waits", 2, 1, 8, wait_h=9),
        job("comes", 6, 1, 8),
    )
    running = open_cluster(log, 5 * HOUR_S, 8, start="running")
    assert running.state.counts[[FREE, PENDING]].tolist() == [0, 0]
    running.run_until(7 * HOUR_S)
    assert running.state.counts[PENDING] == 2
    assert start_hours(running, 3) == [1.0, 11.0, 12.0]
    empty = open_cluster(log, 5 * HOUR_S, 8, start="empty")
    assert start_hours(empty, 1) == [6.0]


def test_jobs_larger_than_the_cluster_are_left_out() -> None:
    log = log_of(job("huge", 0, 1, 9), job("small", 1, 1, 1))
    cluster = open_cluster(log, 0.0, 8, start="empty")
    assert start_hours(cluster, 1) == [1.0]


def test_fork_goes_its_own_way() -> None:
    log = log_of(*(job(str(number), number / 4, 3, 3) for number in range(30)))
    cluster = open_cluster(log, 0.0, 8, start="empty")
    cluster.run_until(4 * HOUR_S)
    fork = cluster.fork()
    ours = fork.submit(8, HOUR_S, HOUR_S)
    assert fork.run_until_started(ours) > 4 * HOUR_S
    untouched = open_cluster(log, 0.0, 8, start="empty")
    assert start_hours(cluster, 30) == start_hours(untouched, 30)


def test_job_larger_than_the_cluster_is_refused() -> None:
    cluster = open_cluster(log_of(job("a", 0, 1, 1)), 0.0, 8)
    with pytest.raises(ValueError, match="9 nodes cannot start on 8"):
        cluster.submit(9, HOUR_S, HOUR_S)


def test_planned_start_is_behind_the_queue_by_time_limits() -> None:
    log = log_of(job("runs", 0, 1, 6, limit_h=5), job("large", 1 / 6, 1, 8, limit_h=2))
    cluster = open_cluster(log, 0.0, 8, start="empty")
    cluster.run_until(HOUR_S / 2)
    assert cluster.plan_start_at(2, 4 * HOUR_S) == HOUR_S / 2
    assert cluster.plan_start_at(2, 5 * HOUR_S) == 7 * HOUR_S
    assert cluster.plan_start_at(4, 1 * HOUR_S) == 7 * HOUR_S
    assert cluster.plan_start_at(9, 1 * HOUR_S) == math.inf
    ours = cluster.submit(4, HOUR_S, HOUR_S)
    assert cluster.run_until_started(ours) < 3 * HOUR_S  # the first job ends long before its limit
