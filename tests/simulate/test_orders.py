"""Ordered policies: kept queue and ledger give the literal cycle's schedule, and the peers' figures."""

from dataclasses import replace

import numpy as np
import pytest

from laxity_lab.simulate.report import report
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.traces import TraceJob, load
from laxity_scheduler.allocation.order import Packing
from laxity_scheduler.policies.registry import REGISTRY
from tests.support.simulated import SAMPLES, TRACES, job, random_trace, trace

ORDERS = [name for name, policy in REGISTRY.items() if policy.kind == "order"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ORDERS)
@pytest.mark.parametrize("packing", ["skip", "strict"])
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("error", [0.0, 0.4])
def test_keeping_queue_and_ledger_gives_the_schedule_of_the_literal_cycle(
    policy: str, packing: Packing, error: float, *, pooled: bool
) -> None:
    """Jobs up to twice as wide as a node, some submitted at one instant, one too wide to run."""
    for seed in range(4):
        jobs = trace(*random_trace(seed, jobs=40).jobs, *at_once(seed), job("huge", gpus=25))
        setting = Setting(
            policy, 3, 8, pooled=pooled, packing=packing, error=error, seed=seed, epoch_s=1e9
        )
        kept, literal = (
            simulate(jobs, setting),
            simulate(jobs, replace(setting, literal_cycle=True)),
        )
        for name in ("first_start_at", "finished_at", "running_s", "gpu_s", "preemptions"):
            assert kept.column(name).tolist() == pytest.approx(literal.column(name).tolist()), name
        waits_forever = [kept.ids.index(one) for one in kept.ids if one.endswith("huge")]
        if packing == "skip":
            assert np.flatnonzero(np.isinf(kept.column("finished_at"))).tolist() == waits_forever


def at_once(seed: int) -> list[TraceJob]:
    """Jobs of one instant and one length, so that only their place in the file tells them apart."""
    return [job(f"tie-{seed}-{number}", at=500.0, runs_s=300.0, gpus=2) for number in (3, 1, 2)]


@pytest.mark.parametrize("policy", ORDERS)
def test_jobs_of_failed_nodes_are_started_again_in_the_same_order(policy: str) -> None:
    """With failures there is only the literal cycle: all end, and the waiting is no shorter."""
    jobs = random_trace(5, jobs=40, levels=(1, 2, 4, 8))
    calm = simulate(jobs, Setting(policy, 3, 8))
    failing = simulate(jobs, Setting(policy, 3, 8, fails_s=4_000.0, repair_s=600.0))
    assert np.isfinite(failing.column("finished_at")).all()
    assert failing.column("preemptions").sum() > 0
    assert failing.column("finished_at").max() >= calm.column("finished_at").max()


def test_a_shorter_job_goes_first_and_a_job_that_does_not_fit_is_passed_over() -> None:
    jobs = trace(
        job("runs", runs_s=100.0, gpus=3),
        job("wide", at=1.0, runs_s=10.0, gpus=4),
        job("small", at=2.0, runs_s=50.0, gpus=1),
    )
    skipped = simulate(jobs, Setting("sjf", 1, 4)).column("first_start_at").tolist()
    strict = (
        simulate(jobs, Setting("sjf", 1, 4, packing="strict")).column("first_start_at").tolist()
    )
    assert skipped == [0.0, 100.0, 2.0]
    assert strict == [0.0, 100.0, 110.0]


def test_a_job_larger_than_the_cluster_is_refused_and_the_others_run() -> None:
    figures = report(simulate(trace(job("big", gpus=64), job("small")), Setting("fifo", 1, 8)))
    assert (figures["jobs"], figures["finished"], figures["refused"]) == (2, 1, 1)


def test_the_shipped_part_of_philly_runs_to_its_end() -> None:
    sample = load(SAMPLES / "philly" / "philly.csv", "philly")
    figures = report(simulate(sample, Setting("sjf", 8, 8, pooled=True)))
    assert figures["finished"] == len(sample.jobs) > 200
    assert not sample.bad_lines


@pytest.mark.skipif(TRACES is None, reason="LAXITY_TRACES names no folder of traces")
@pytest.mark.parametrize(
    ("policy", "jct_s", "wait_s"), [("fifo", 15_636.8, 7_807.8), ("sjf", 12_227.0, 4_398.0)]
)
def test_a_week_of_philly_gives_the_figures_of_other_simulators(
    policy: str, jct_s: float, wait_s: float
) -> None:
    assert TRACES is not None
    week = load(
        TRACES / "philly" / "philly.csv", "philly", from_at=1506816000.0, until_at=1507420800.0
    )
    figures = report(simulate(week, Setting(policy, 64, 8, pooled=True)))
    assert figures["jobs"] == 10_650
    assert round(float(str(figures["avg_jct_s"])), 1) == jct_s
    assert round(float(str(figures["avg_wait_s"])), 1) == wait_s
