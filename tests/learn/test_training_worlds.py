"""Whose arrivals the worlds have in which a net is improved, and those that judge it."""

from functools import partial

import numpy as np

from laxity_lab.policy_training import training_worlds
from laxity_lab.policy_training.training_worlds import (
    WorldKinds,
    draw_world,
    make_validation_worlds,
)
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import Trace, TraceJob
from studies.real_arrivals import borrow_arrivals

TABLES = {("m", 1): ThroughputTable((1, 2, 4), (1.0, 2.0, 4.0))}
REAL = Trace("real", tuple(TraceJob(f"{n}", 60.0 * n, 777.0, 1) for n in range(9)))
REAL_ARRIVALS = partial(borrow_arrivals, REAL)


def borrows(jobs: object) -> bool:
    assert isinstance(jobs, tuple)
    return all(job.duration_s == 777.0 for job in jobs)


def test_every_second_training_world_or_so_has_real_arrivals() -> None:
    kinds, draw = WorldKinds(training=[REAL_ARRIVALS], jobs=5), np.random.default_rng(1)
    worlds = [draw_world(TABLES, draw, kinds=kinds)[0] for _ in range(40)]
    assert {len(jobs) for jobs in worlds} == {5}
    assert 12 < sum(map(borrows, worlds)) < 28


def test_each_real_trace_judges_beside_each_generated_world() -> None:
    usual = list(make_validation_worlds(TABLES))
    assert not any(borrows(jobs) for jobs, _ in usual)
    assert {len(jobs) for jobs, _ in usual} == {training_worlds.JOBS}
    kinds = WorldKinds(validation=[REAL_ARRIVALS], jobs=5, exponents=(1.0,))
    real = [borrows(jobs) for jobs, _ in make_validation_worlds(TABLES, kinds=kinds)]
    assert sum(real) == len(real) / 2 == len(usual) / 3
