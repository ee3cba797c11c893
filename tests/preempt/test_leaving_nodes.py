"""Jobs leave nodes that somebody empties: at their epoch's end where they can, else at once."""

from typing import TypeVar

import pytest

from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState, Node
from laxity_scheduler.model.decision import Admit, Preempt, Refuse, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.qos import decide
from tests.support.builders import MINUTE_EPOCHS, cluster, job, node, promised

Made = TypeVar("Made", Admit, Preempt, Refuse, Resize)
DRAINED = node("n0", gpus=4, free_gpus=0, pool="cordoned")
OPEN = node("n1", gpus=4)


def planned(*jobs: Job, nodes: tuple[Node, ...] = (DRAINED, OPEN), now: float = 30.0) -> Plan:
    state = ClusterState(now=now, nodes=nodes, jobs=jobs)
    plan = with_follow_ups(decide)(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    return plan


def acts(plan: Plan, kind: type[Made]) -> list[Made]:
    return [one for one in plan.decisions if isinstance(one, kind)]


def test_a_job_on_a_cordoned_node_stops_at_its_epochs_end_for_itself() -> None:
    (stop,) = acts(planned(job("a", running=1)), Preempt)
    assert (stop.at, stop.beneficiary, stop.reason.code) == ("epoch", "team/a", "node_cordoned")
    assert stop.reason.text == (
        "node n0 is cordoned: it stops at the end of its epoch and starts on other nodes"
    )


@pytest.mark.parametrize(
    "stays",
    [
        pytest.param(job("a", running=1, preemptible=False), id="it cannot save"),
        pytest.param(job("a", running=1, pinned=True), id="pinned"),
        pytest.param(job("a", running=1, stop_requested_at=10.0, stop_for="team/a"), id="asked"),
        pytest.param(job("a", running=1, nodes=("n1",)), id="on another node"),
    ],
)
def test_others_are_not_asked_to(stays: Job) -> None:
    assert acts(planned(stays), Preempt) == []


def test_a_parked_job_makes_room_and_starts_on_other_nodes() -> None:
    parked = job("a", running=1, stop_requested_at=10.0, stop_for="team/a", parked_epoch=3)
    (stop,) = acts(planned(parked), Preempt)
    assert (stop.at, stop.reason.text) == (
        "now",
        "saved at the end of epoch 3: it stops for a start on other nodes",
    )
    (start,) = acts(planned(job("a", done=3)), Admit)
    assert start.nodes == ("n1",)


@pytest.mark.parametrize(
    ("fits", "kind", "words"),
    [
        pytest.param(0, Preempt, "why; it starts anew where there is room", id="none stays"),
        pytest.param(1, Resize, "why; the others go on", id="one stays"),
    ],
)
def test_a_displaced_worker_is_not_waited_for_and_no_start_has_failed(
    fits: int,
    kind: type[Preempt | Resize],
    words: str,
) -> None:
    lost = job(
        "a", workers=(1, 2), running=2, nodes=("n1", "n0"), fitting_workers=fits, displaced="why"
    )
    (change,) = [one for one in planned(lost).decisions if isinstance(one, kind)]
    assert (change.at, change.reason.code, change.reason.text) == ("now", "worker_displaced", words)


def test_nothing_is_promised_on_a_cordoned_node() -> None:
    """Four GPUs are left, and who leaves the other four needs them; who stays needs none."""
    leaving = [promised(f"p{number}", 900.0, running=1, epochs=10) for number in range(4)]
    late = job("late", due_at=700.0)
    assert acts(planned(*leaving, late), Refuse)
    staying = [
        promised(f"p{number}", 900.0, running=1, epochs=10, preemptible=False)
        for number in range(4)
    ]
    assert not acts(planned(*staying, late), Refuse)
    assert not acts(planned(*leaving, late, nodes=cluster(gpus=[4, 4]).nodes), Refuse)
