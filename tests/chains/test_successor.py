"""A pair of jobs in a queue, and what the baselines make of it."""

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from laxity_lab.batch_queue.baselines import (
    METHODS,
    average,
    average_now,
    reactive,
    slurm_estimate,
)
from laxity_lab.batch_queue.log_formats import load_queue_log
from laxity_lab.batch_queue.queue_log import QueueLog
from laxity_lab.batch_queue.successor import Pair, PairSettings
from laxity_scheduler.chains.snapshot_loop import recent_mean_s
from tests.chains.busy_log import DAY_S, HOUR_S, busy_log

TRACES = os.environ.get("LAXITY_TRACES")


def pair_of(log: QueueLog, **settings: float) -> Pair:
    return Pair(log, 0.0, PairSettings(8, **settings))  # type: ignore[arg-type]


def test_successor_in_an_empty_cluster_starts_when_it_is_submitted() -> None:
    pair = pair_of(busy_log(every_h=5.0, run_h=1.0))
    early, late = pair.probe([pair.ended_at - HOUR_S, pair.ended_at + HOUR_S])
    assert (early.difference_h, late.difference_h) == (-1.0, 1.0)


def test_probes_that_share_a_simulation_equal_probes_alone() -> None:
    log = busy_log()
    instants = pair_of(log).even_instants(7)
    alone = [pair_of(log).probe([instant])[0] for instant in instants]
    assert pair_of(log).probe(reversed(instants)) == alone[::-1]
    assert len({probe.difference_h for probe in alone}) > 1


def test_reactive_successor_waits_in_a_full_cluster() -> None:
    pair = pair_of(busy_log())
    probe = pair.probe([reactive(pair)])[0]
    assert (probe.submitted_at, probe.difference_h > 1.0) == (pair.ended_at, True)


def test_average_submits_earlier_by_the_mean_wait_at_the_predecessors_start() -> None:
    pair = pair_of(busy_log())
    started_at, wait_s = pair.without_successor().waits()
    known = wait_s[started_at <= pair.started_at][-100:]
    assert average(pair) == pair.ended_at - known.mean() // 60 * 60
    assert known.mean() > 60


def test_average_now_knows_waits_that_grew_since_the_predecessor_started() -> None:
    pair = pair_of(busy_log())
    assert average_now(pair) < average(pair) < reactive(pair)


def test_slurm_estimate_submits_when_the_plan_reaches_the_predecessors_end() -> None:
    pair = pair_of(busy_log())
    plans = list(pair.plan_starts(600.0))
    submitted_at = slurm_estimate(pair)
    assert all(planned < pair.ended_at for at, planned in plans if at < submitted_at)
    assert dict(plans).get(submitted_at, pair.ended_at) >= pair.ended_at
    assert submitted_at < pair.ended_at


def test_slurm_estimate_is_reactive_in_an_empty_cluster() -> None:
    pair = pair_of(busy_log(every_h=5.0, run_h=1.0))
    assert slurm_estimate(pair) == reactive(pair)


def test_mean_wait_is_of_the_last_hundred_that_have_started() -> None:
    started_at = np.arange(300.0)
    wait_s = np.where(started_at < 200, 0.0, 600.0)
    assert recent_mean_s(started_at, wait_s, 1_000.0) == 600.0
    assert recent_mean_s(started_at, wait_s, 249.0) == 300.0
    assert recent_mean_s(started_at, wait_s, -1.0) == 0.0


def test_pair_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="9 nodes cannot start on 8"):
        pair_of(busy_log(), nodes=9)


PUBLISHED = [  # measured in Mirage's released simulator: pair, hours apart, points, method, figures
    (1, 16, 39, "reactive", (1.10, 0.62, 7.5, 0.00)),
    (1, 16, 39, "average", (1.06, 0.64, 7.5, 0.51)),
    (8, 32, 20, "reactive", (2.80, 0.55, 10.6, 0.00)),
    (8, 32, 20, "average", (2.78, 0.55, 10.6, 0.38)),
]


@pytest.mark.skipif(TRACES is None, reason="LAXITY_TRACES names no folder of traces")
@pytest.mark.parametrize(("nodes", "every_h", "points", "method", "figures"), PUBLISHED)
def test_released_simulator_gives_the_same_figures(
    nodes: int, every_h: int, points: int, method: str, figures: tuple[float, ...]
) -> None:
    assert TRACES is not None
    log = load_queue_log(Path(TRACES) / "mirage" / "ls6-a100.log", "mirage")
    settings = PairSettings(80, nodes=nodes, arrivals_s=5 * DAY_S)
    first_at = datetime(2023, 3, 1, tzinfo=UTC).timestamp()
    pairs = [Pair(log, first_at + every_h * HOUR_S * n, settings) for n in range(points)]
    hours = np.array([p.probe([METHODS[method](p)])[0].difference_h for p in pairs])
    interruption_h = np.maximum(hours, 0.0)
    overlap_h = np.maximum(-hours, 0.0).mean()
    measured = (interruption_h.mean(), (hours <= 0).mean(), interruption_h.max(), overlap_h)
    assert [round(float(value), 2) for value in measured[:2]] == list(figures[:2])
    assert round(float(measured[2]), 1) == figures[2]
    assert round(float(measured[3]), 2) == figures[3]
