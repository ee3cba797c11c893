"""A worker of eight GPUs is promised a node, not eight loose GPUs."""

from dataclasses import replace

import numpy as np
import pytest

from laxity_scheduler.model.cluster import Coming
from laxity_scheduler.model.decision import Refuse
from laxity_scheduler.model.job import Job, Promise, Refusal, Verdict
from laxity_scheduler.policies.qos import QosPolicy
from laxity_scheduler.promising.promise import judge
from laxity_scheduler.promising.whole_workers import WholeWorkers, read_frees, whole_free
from tests.promise.test_toy_world import keeps_to_sets, keeps_whole_nodes
from tests.support.builders import MINUTE_EPOCHS, cluster, job, node, promised
from tests.support.plans import started_jobs

EIGHTS = WholeWorkers(8, "")


def fillers(*, preemptible: bool) -> list[Job]:
    """On each of four nodes one job that takes four of eight GPUs for ten minutes."""
    return [
        job(
            f"f{number}",
            epochs=10,
            workers=(1,),
            gpus_per_worker=4,
            running=1,
            nodes=(f"n{number}",),
            preemptible=preemptible,
        )
        for number in range(4)
    ]


def verdict_with(deadline_s: float, *, preemptible: bool) -> Verdict:
    large = job("large", epochs=3, gpus_per_worker=8, due_at=deadline_s)
    state = cluster(gpus=[8] * 4, jobs=[*fillers(preemptible=preemptible), large])
    return judge(state, large, MINUTE_EPOCHS)


def test_a_whole_node_is_not_promised_before_any_node_is_empty() -> None:
    refused = verdict_with(600.0, preemptible=False)

    assert isinstance(refused, Refusal)
    assert refused.reason.code == "capacity_promised_to_others"
    assert "leave 0" in refused.reason.text


def test_nor_does_a_second_look_promise_it() -> None:
    large = job("large", epochs=3, gpus_per_worker=8, due_at=600.0)
    state = cluster(gpus=[8] * 4, jobs=[*fillers(preemptible=False), large])

    plan = QosPolicy()(state, MINUTE_EPOCHS)

    assert [d.job for d in plan.decisions if isinstance(d, Refuse)] == [large.id]


def test_the_offer_beside_it_waits_for_a_whole_node() -> None:
    refused = verdict_with(600.0, preemptible=False)
    assert isinstance(refused, Refusal)
    deadline = next(offer for offer in refused.offers if offer.kind == "deadline")

    assert deadline.deadline_at >= 600.0 + 180.0
    assert isinstance(verdict_with(deadline.deadline_at, preemptible=False), Promise)


def test_a_whole_node_is_not_promised_at_once_where_its_gpus_are_free_on_two_nodes() -> None:
    """Those in the way leave at the end of an epoch, and that is too late."""
    verdict = verdict_with(190.0, preemptible=True)

    assert isinstance(verdict, Refusal)
    assert isinstance(verdict_with(250.0, preemptible=True), Promise)


def test_of_two_that_must_start_at_once_one_is_promised_the_only_whole_node() -> None:
    """Eight GPUs are free on n2, and as many on two others together."""
    due_at = 190.0
    new = [job(name, epochs=3, gpus_per_worker=8, due_at=due_at) for name in ("first", "second")]
    busy = [one for one in fillers(preemptible=True) if one.nodes < ("n2",)]
    state = cluster(gpus=[8, 8, 8], jobs=[*busy, *new])

    decisions = QosPolicy()(state, MINUTE_EPOCHS).decisions

    assert [d.job for d in decisions if isinstance(d, Refuse)] == ["team/second"]


def verdict_beside_a_pool(deadline_s: float) -> Verdict:
    """The same where a node of eight GPUs may come within four minutes."""
    large = job("large", epochs=3, gpus_per_worker=8, due_at=deadline_s)
    state = cluster(gpus=[8] * 4, jobs=[*fillers(preemptible=False), large])
    spot = node("spot+1", 8, pool="coming", coming=Coming("spot", 240.0, 190.0))
    return judge(replace(state, nodes=(*state.nodes, spot)), large, MINUTE_EPOCHS)


def test_a_whole_node_that_may_come_is_promised_when_it_can_be_there() -> None:
    promise, refused = verdict_beside_a_pool(600.0), verdict_beside_a_pool(400.0)

    assert isinstance(promise, Promise)
    assert promise.p90_at >= 240.0 + 180.0
    assert isinstance(refused, Refusal)


def test_a_whole_node_is_promised_where_those_on_it_can_be_stopped() -> None:
    assert isinstance(verdict_with(600.0, preemptible=True), Promise)


def test_whole_workers_are_counted_node_by_node() -> None:
    runs = [
        job("a", running=1, gpus_per_worker=4, nodes=("n0",)),
        job("b", running=2, nodes=("n2", "n2")),
    ]
    state = cluster(gpus=[8, 8, 8], jobs=runs)

    frees = read_frees(state, [0, 1], np.array([100.0, 50.0]), 0.0)

    now, more = whole_free(frees, EIGHTS, None)
    assert now == 8.0
    assert more[frees.until_s == 50.0].sum() == 8.0, "n2 is whole once both have gone"
    assert more[frees.until_s == 100.0].sum() == 8.0


@pytest.mark.parametrize("seed", [81, 134, 274, 401])
def test_nobody_sits_down_on_the_node_that_a_promised_job_will_need_whole(seed: int) -> None:
    """81: j5 can wait for the second until j0 has left n0, and j6 needs all of n1."""
    keeps_whole_nodes(seed)


def test_no_job_is_stopped_for_a_worker_that_finds_no_room_on_its_node_all_the_same() -> None:
    """j3 needs 8 GPUs; j0, which is promised, stays on the node that j2 would leave it."""
    keeps_whole_nodes(407)


def test_an_empty_node_is_not_kept_for_a_job_that_is_planned_to_start_on_another_one() -> None:
    """`ends` leaves n1 to `large` in two minutes; `small` starts on n0 now."""
    ends = job("ends", epochs=2, gpus_per_worker=8, running=1, nodes=("n1",), preemptible=False)
    small = promised("small", 1_000.0, epochs=10, gpus_per_worker=4)
    large = promised("large", 2_000.0, epochs=10, gpus_per_worker=8)

    plan = QosPolicy()(cluster(gpus=[8, 8], jobs=[ends, small, large]), MINUTE_EPOCHS)

    assert started_jobs(plan) == ["team/small"]


def test_no_node_is_kept_whole_for_a_job_that_may_not_take_it() -> None:
    """j9 needs a whole node, and leaves n0 to j7 and j0, which may use no other: j7 starts there."""
    keeps_to_sets(325)
