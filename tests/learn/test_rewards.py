"""What improvement is about: shorter jobs, or deadlines that are met."""

import numpy as np
import pytest

from laxity_lab.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_lab.policy_training.slot_environment import (
    SLOT_S,
    SlotCluster,
    WorldOutcome,
    run_in_slots,
)
from laxity_lab.policy_training.training_worlds import compute_gain, draw_world, mean_cost
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import TraceJob
from tests.learn.test_reinforcement import scored

TABLE = ThroughputTable((1, 2, 4), (1.0, 2.0, 4.0))
TABLES = {("m", 1): TABLE}


def due(name: str, deadline_at: float, alone_s: float = 1_000.0) -> TraceJob:
    return TraceJob(name, 0.0, alone_s, 1, deadline_at=deadline_at, iterations=alone_s, table=TABLE)


def test_a_missed_deadline_costs_what_a_whole_job_earns_and_is_counted_once() -> None:
    jobs = [due("late", 700.0), due("early", 9_000.0)]
    plain, cluster = SlotCluster(jobs, 2), SlotCluster(jobs, 2, "deadlines")
    assert cluster.train([1, 1]) == plain.train([1, 1])
    assert cluster.train([1, 1]) == pytest.approx(plain.train([1, 1]) - 1.0)
    assert cluster.done
    assert cluster.missed == {"late"}


def test_a_deadline_is_missed_in_the_slot_in_which_it_passes() -> None:
    cluster = SlotCluster([due("a", 100.0, alone_s=3_000.0)], 1, "deadlines")
    rewards = [cluster.train([1]) for _ in range(3)]
    assert rewards[0] < 0.0 < rewards[1]
    assert sum(rewards) == pytest.approx(-1.0 + 3 * SLOT_S / 3_000.0, abs=0.02)


def test_the_slack_of_a_job_is_seen() -> None:
    cluster = SlotCluster([due("a", 1_500.0, alone_s=3_000.0)], 1)
    cluster.train([1])
    assert cluster.observe()[0].spare_s == 1_500.0 - SLOT_S


def test_an_outcome_counts_the_jobs_that_were_late() -> None:
    jobs = [due("a", 500.0), due("b", 9_000.0)]
    assert run_in_slots(jobs, 2, scored()).missed == 0.5


def test_fewer_missed_deadlines_gain_more_than_shorter_jobs() -> None:
    before, met = WorldOutcome(100.0, 0.5), WorldOutcome(120.0, 0.4)
    assert compute_gain(met, before, "jct") < 0.0 < compute_gain(met, before, "deadlines")
    shorter = WorldOutcome(90.0, 0.5)
    assert 0.0 < compute_gain(shorter, before, "deadlines") < compute_gain(shorter, before, "jct")


def test_worlds_have_deadlines_only_where_these_are_rewarded() -> None:
    plain, dated = (
        draw_world(TABLES, np.random.default_rng(1), reward)[0] for reward in ("jct", "deadlines")
    )
    assert all(job.deadline_at == float("inf") for job in plain)
    tightness = [(job.deadline_at - job.submitted_at) / job.duration_s for job in dated]
    assert 1.2 <= min(tightness) < 1.5
    assert 2.7 < max(tightness) <= 3.0
    assert [job.submitted_at for job in dated] == [job.submitted_at for job in plain]


def test_deadlines_leave_the_jobs_of_a_seed_as_they_are() -> None:
    free, dated = (
        make_trace(TABLES, ArrivalMix(9, 8, 1.0, tightness=tightness), seed=1).jobs
        for tightness in ((), (1.2, 3.0))
    )
    assert [job.duration_s for job in free] == [job.duration_s for job in dated]
    assert {job.service_class for job in dated} == {"hard"}


def test_the_cost_of_deadlines_is_mostly_the_share_missed() -> None:
    never, some = WorldOutcome(1.0, 0.0), WorldOutcome(1.0, 0.25)
    least = mean_cost(TABLES, lambda *_: never, "deadlines")
    assert mean_cost(TABLES, lambda *_: some, "deadlines") - least == pytest.approx(0.25)
    assert least < 0.01
