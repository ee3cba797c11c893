"""False refusals, by hand: who was refused and would have been in time after all."""

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from laxity_lab.simulate.refusals import false_refusals, longest_s, wrongly_refused
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.traces import TraceJob
from laxity_lab.world.outcome import Run, columns_with_defaults
from laxity_lab.world.trace_truths import ground_truths
from laxity_scheduler.simulated.change_costs import costs
from tests.support.command_line import run_simulate
from tests.support.simulated import LINEAR, SAMPLES, job, trace

BUSY = [(0.0, 4), (100.0, 2), (500.0, 4), (600.0, 0)]  # on 4 GPUs: 2 idle from 100 to 500 s


def refused(*jobs: TraceJob, ended_at: Sequence[float] = (), restart_s: float = 0.0) -> list[bool]:
    """All of these were refused while the GPUs were busy as above."""
    ends = np.array([*ended_at, *[math.inf] * (len(jobs) - len(ended_at))])
    run = Run(
        policy="by hand",
        trace="made",
        gpus=4,
        ids=[one.id for one in jobs],
        columns=columns_with_defaults(len(jobs), finished_at=ends),
        refused=dict.fromkeys(range(len(jobs)), "capacity_promised_to_others"),
        busy=BUSY,
    )
    known = ground_truths(trace(*jobs), elastic=True, gpus_per_node=4, pooled=True)
    return wrongly_refused(run, known, costs("flat", cluster_gpus=4, restart_s=restart_s))


@pytest.mark.parametrize(
    ("runs_s", "at", "due_at", "would"),
    [
        # on two workers it takes half as long
        pytest.param(800.0, 0.0, 500.0, True, id="just fits into the 400 s in which two are idle"),
        pytest.param(802.0, 0.0, 500.0, False, id="a second too long"),
        pytest.param(800.0, 101.0, 500.0, False, id="came a second too late"),
        pytest.param(400.0, 0.0, 299.0, False, id="due before there is room for so long"),
        pytest.param(400.0, 0.0, 300.0, True, id="due when it would end"),
        pytest.param(1_000.0, 0.0, 850.0, True, id="on four once all are idle, from 600 s on"),
    ],
)
def test_a_refused_job_counts_if_the_idle_gpus_would_have_held_it(
    runs_s: float, at: float, due_at: float, would: bool
) -> None:
    assert refused(job(at=at, runs_s=runs_s, due_at=due_at, table=LINEAR)) == [would]


def test_its_start_takes_time_as_well() -> None:
    one = job(runs_s=800.0, due_at=500.0, table=LINEAR)
    assert refused(one, restart_s=0.0) == [True]
    assert refused(one, restart_s=1.0) == [False]


def test_who_ran_on_without_a_promise_counts_if_it_was_in_time() -> None:
    jobs = [job(name, due_at=500.0) for name in "ab"]
    assert refused(*jobs, ended_at=(500.0, 501.0)) == [True, False]


def test_who_has_no_deadline_is_not_asked() -> None:
    assert refused(job()) == []


def test_a_job_that_nothing_could_have_kept_is_refused_rightly() -> None:
    jobs = trace(
        job("kept", runs_s=4_000.0, due_at=1_000.0, table=LINEAR),
        job("late", at=10.0, runs_s=4_000.0, due_at=1_010.0, table=LINEAR),
    )
    setting = Setting("elasticflow", 1, 4, cost_model="free")
    run = simulate(jobs, setting)
    assert len(run.refused) == 1
    assert false_refusals(run, jobs, setting) == 0


def test_a_wrong_belief_refuses_wrongly() -> None:
    """Alone on an idle cluster with time to spare for all but those who believe in far more work."""
    jobs = trace(*[job(f"j{n}", at=9e4 * n, runs_s=4e3, due_at=9e4 * n + 4.4e3) for n in range(9)])
    setting = Setting("edf", 1, 4, cost_model="free", error=0.4, admission="greedy")
    run = simulate(jobs, setting)
    assert 0 < len(run.refused) < 9
    assert false_refusals(run, jobs, setting) == len(run.refused)


def test_the_longest_of_several_stretches_counts() -> None:
    marks = np.array([0.0, 1.0, 2.0, 5.0, 6.0, 8.0])
    assert longest_s(np.array([True, True, False, True, True]), marks) == 3.0
    assert longest_s(np.zeros(5, dtype=np.bool_), marks) == 0.0
    assert longest_s(np.ones(5, dtype=np.bool_), marks) == 8.0


def test_the_command_prints_them() -> None:
    itp = str(SAMPLES / "itp" / "195job.csv")
    words = ["--policy", "elasticflow", "--trace", itp, "--nodes", "4", "--pooled", "--json"]
    figures = json.loads(run_simulate(*words)[1])
    assert 0 <= figures["false_refusals"] <= figures["refused"]
    assert 0.0 < figures["p90_coverage"] <= 1.0
