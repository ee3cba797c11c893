"""The world of loans: jobs of the paper's kinds at the load that is asked for."""

import pytest

from laxity_lab.traces.trace_lookup import SAMPLES
from laxity_lab.traces.traces import Trace, load
from studies.loan_world import (
    TRAINING,
    LoanSize,
    busiest_jobs,
    make_world,
    mean_usage,
    run_world,
)


def sample() -> Trace:
    return load(SAMPLES / "philly" / "philly.csv", "philly")


def test_jobs_are_of_the_papers_kinds_at_the_load_asked_for() -> None:
    world = make_world(sample(), LoanSize(0, load=8.0))
    elastic = [job for job in world.jobs if len(job.widths) > 1]
    time = [sum(job.asked_gpus * job.ideal_s for job in some) for some in (elastic, world.jobs)]
    assert len(elastic) == pytest.approx(0.05 * len(world.jobs), abs=1)
    assert time[0] / time[1] == pytest.approx(0.36, abs=0.05)
    assert not {job.eligible for job in elastic} - {""}
    restricted = [job for job in world.jobs if job.eligible == TRAINING]
    assert 0.7 < len(restricted) / len(world.jobs) < 0.88
    assert world.inference_nodes == round(world.training_nodes * 520 / 443)
    half = make_world(sample(), LoanSize(0, load=4.0))
    assert half.training_nodes == pytest.approx(2 * world.training_nodes, abs=1)


def test_a_sample_of_the_jobs_is_drawn_by_its_seed() -> None:
    some = busiest_jobs(sample(), 50, seed=1)
    assert len(some.jobs) == 50
    assert some == busiest_jobs(sample(), 50, seed=1)
    assert some != busiest_jobs(sample(), 50, seed=2)
    assert some.jobs[0].submitted_at == 0.0


def test_usage_counts_training_and_inference_while_jobs_are_submitted() -> None:
    world = make_world(sample(), LoanSize(40, load=8.0))
    run = run_world(world, lends=True, scales=True)
    assert 0.42 * 520 / 963 < mean_usage(run) < 1.0
