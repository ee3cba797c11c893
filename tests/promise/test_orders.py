"""FIFO, SJF and EDF (algorithms.md 7.1, 7.2), one decision each, worked by hand.

Epochs take 60 s on one worker and speed up linearly; nothing costs anything.
"""

import pytest

from laxity_scheduler.allocation.order import Packing
from laxity_scheduler.model.decision import Admit, Wait
from laxity_scheduler.policies import edf, fifo
from laxity_scheduler.policies.registry import find
from tests.support.builders import MINUTE_EPOCHS, cluster, job

THREE = [
    job("wide", epochs=2, workers=(4,), due_at=500.0, submitted_at=0.0),
    job("long", epochs=9, workers=(1,), due_at=900.0, submitted_at=1.0),
    job("short", epochs=1, workers=(2,), due_at=700.0, submitted_at=2.0),
]


def started(policy: str, packing: Packing, gpus: int) -> list[str]:
    """Names in the order in which they are admitted; so many GPUs are free, two are not."""
    busy = job("busy", workers=(2,), running=2)
    state = cluster(gpus=gpus + 2, jobs=[busy, *THREE], now=10.0)
    plan = find(policy).policy(packing=packing)(state, MINUTE_EPOCHS)
    return [d.job.removeprefix("team/") for d in plan.decisions if isinstance(d, Admit)]


@pytest.mark.parametrize(
    ("policy", "packing", "gpus", "want"),
    [
        # submitted: wide 0, long 1, short 2; GPUs: 4, 1, 2
        pytest.param("fifo", "skip", 3, ["long", "short"], id="fifo passes the wide one over"),
        pytest.param("fifo", "strict", 3, [], id="fifo strict waits for the wide one"),
        pytest.param("fifo", "strict", 5, ["wide", "long"], id="fifo strict starts the first two"),
        # run times: wide 2 x 60 / 4 = 30 s, long 9 x 60 = 540 s, short 60 / 2 = 30 s: submitted breaks the tie
        pytest.param("sjf", "skip", 4, ["wide"], id="sjf: of two of 30 s the earlier one"),
        pytest.param("sjf", "skip", 3, ["short", "long"], id="sjf passes over what does not fit"),
        pytest.param("sjf", "strict", 3, [], id="sjf strict waits for its shortest"),
        # deadlines: wide 500, short 700, long 900
        pytest.param("edf", "skip", 6, ["wide", "short"], id="edf: the first two due fill it"),
        pytest.param("edf", "skip", 3, ["short", "long"], id="edf passes over what does not fit"),
    ],
)
def test_who_starts_in_which_order(
    policy: str, packing: Packing, gpus: int, want: list[str]
) -> None:
    assert started(policy, packing, gpus) == want


def test_a_job_that_not_even_the_empty_cluster_holds_blocks_nobody() -> None:
    """Two nodes of 4 GPUs: no place for 5 GPUs on one node, nor for three workers of 4."""
    jobs = [
        job("large", gpus_per_worker=5),
        job("many", workers=(3,), gpus_per_worker=4, submitted_at=1.0),
        job("small", submitted_at=2.0),
    ]
    strict = find("fifo").policy(packing="strict")
    plan = strict(cluster(gpus=[4, 4], jobs=jobs), MINUTE_EPOCHS)
    assert {d.job: d.reason.code for d in plan.decisions if isinstance(d, Wait)} == dict.fromkeys(
        ["team/large", "team/many"], "does_not_fit_cluster"
    )
    assert [d.job for d in plan.decisions if isinstance(d, Admit)] == ["team/small"]


def test_fifo_gives_each_job_its_widest_width_that_fits() -> None:
    """6 GPUs: the first takes 4 of its (1, 2, 4), the second the 2 that are left."""
    jobs = [job("a", workers=(1, 2, 4)), job("b", workers=(1, 2, 4), submitted_at=1.0)]
    plan = fifo.decide(cluster(gpus=6, jobs=jobs), MINUTE_EPOCHS)
    assert [(d.job, d.workers) for d in plan.decisions if isinstance(d, Admit)] == [
        ("team/a", 4),
        ("team/b", 2),
    ]


@pytest.mark.parametrize(
    ("due_at", "workers"),
    [
        pytest.param(600.0, 1, id="10 x 60 s is just in time on one"),
        pytest.param(599.0, 2, id="a second less takes two: 300 s"),
        pytest.param(299.0, 4, id="less than 300 s takes four: 150 s"),
        pytest.param(100.0, 4, id="late on any width: the fastest"),
    ],
)
def test_edf_gives_the_fewest_workers_that_meet_the_deadline(due_at: float, workers: int) -> None:
    state = cluster(gpus=8, jobs=[job(epochs=10, due_at=due_at, workers=(1, 2, 4))])
    (decision,) = edf.decide(state, MINUTE_EPOCHS).decisions
    assert isinstance(decision, Admit)
    assert decision.workers == workers


def test_edf_looks_again_when_a_waiting_job_needs_more_workers() -> None:
    """Due in 700 s, 600 s long on one worker: in 100 s one worker is no longer enough."""
    busy = job("busy", running=1, epochs=100)
    state = cluster(gpus=1, jobs=[busy, job("b", epochs=10, due_at=700.0, workers=(1, 2))])
    plan = edf.decide(state, MINUTE_EPOCHS)
    assert [type(d) for d in plan.decisions] == [Wait]
    assert plan.wake_at == pytest.approx(100.0, abs=0.01)


@pytest.mark.parametrize("policy", ["edf", "edf_elastic", "elasticflow"])
def test_hard_jobs_go_before_soft_ones_that_are_due_earlier(policy: str) -> None:
    soft = job("soft", epochs=2, due_at=200.0, service_class="soft", submitted_at=0.0)
    hard = job("hard", epochs=2, due_at=900.0, submitted_at=1.0)
    state = cluster(gpus=1, jobs=[soft, hard], now=10.0)
    plan = find(policy).policy()(state, MINUTE_EPOCHS)
    assert [d.job for d in plan.decisions if isinstance(d, Admit)] == ["team/hard"]
