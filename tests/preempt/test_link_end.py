"""A link of a chain is asked to stop at the last epoch that surely ends before its limit."""

from typing import Any

import pytest

from laxity.worker.chain_link import EPOCH_MARGIN
from laxity_profiler.estimate import Progress
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.link_end import LEAVING_S, cut_at, end_links
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Preempt, Resize
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from tests.support.builders import Curve, cluster, job

EPOCH_S = 60.0
LIMIT_S = 3600.0
PREDICTOR = Curve(epoch_s=EPOCH_S)
# The next epoch begins at the end of this one, and must end before the link is cut.
LAST_START = LIMIT_S - LEAVING_S - (1.0 + EPOCH_MARGIN) * EPOCH_S


def state(now: float, *, began_at: float | None = None, **more: Any) -> ClusterState:
    """One link that began at 0, in an epoch since `began_at`."""
    terms: dict[str, Any] = {
        "epochs": 1000, "done": 10, "running": 1, "resumed_at": 0.0, "wall_limit_s": LIMIT_S,
        "epoch_started_at": now if began_at is None else began_at,
    } | more  # fmt: skip
    return cluster(gpus=2, now=now, jobs=[job("chain", **terms)])


def stops(at: ClusterState) -> list[tuple[str, str, str]]:
    """(job, when, why) of what is decided."""
    plan = with_follow_ups(lambda *_: Plan())(at, PREDICTOR)
    check_plan(plan, at)
    return [(d.job, d.at, d.reason.code) for d in plan.decisions if isinstance(d, Preempt)]


def test_it_goes_on_while_another_epoch_surely_fits_and_stops_at_this_ones_end_then() -> None:
    assert stops(state(LAST_START - 1.0)) == []
    assert stops(state(LAST_START + 1.0)) == [("team/chain", "epoch", "link_ends")]


def test_the_longest_of_its_latest_epochs_counts_where_it_is_longer_than_predicted() -> None:
    slow = Progress(10, (60.0, 600.0, 60.0), (1, 1, 1))
    assert stops(state(LAST_START - 1000.0)) == []
    assert stops(state(LAST_START - 1000.0, progress=slow)) == [
        ("team/chain", "epoch", "link_ends")
    ]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"wall_limit_s": float("inf")}, id="without a limit"),
        pytest.param({"done": 999}, id="in its last epoch"),
        pytest.param({"pinned": True}, id="pinned"),
        pytest.param({"stop_requested_at": 1.0, "stop_for": "team/chain"}, id="asked before"),
    ],
)
def test_nobody_is_asked_who_need_not_be(more: dict[str, Any]) -> None:
    assert stops(state(LAST_START + 1.0, **more)) == []


def test_a_link_whose_epoch_does_not_end_is_cut_before_kubernetes_kills_it() -> None:
    asked: dict[str, Any] = {"stop_requested_at": 1.0, "stop_for": "team/chain", "began_at": 1000.0}
    late = state(LIMIT_S - LEAVING_S, **asked)
    assert cut_at(late.jobs[0]) == late.now
    assert stops(late) == [("team/chain", "now", "link_cut")]
    assert stops(state(LIMIT_S - LEAVING_S - 1.0, **asked)) == []


def test_a_parked_link_is_stopped_and_said_to_have_ended_well() -> None:
    parked = state(
        LAST_START, stop_requested_at=1.0, stop_for="team/chain", parked_epoch=11, began_at=None
    )
    assert stops(parked) == [("team/chain", "now", "link_ended")]
    plan = with_follow_ups(lambda *_: Plan())(parked, PREDICTOR)
    (stop,) = plan.decisions
    assert isinstance(stop, Preempt)
    assert stop.beneficiary == "team/chain", "its GPUs are held for its next link"


def test_an_unknown_epoch_is_not_waited_for_longer_than_the_limit() -> None:
    unknown = Curve(epoch_s=EPOCH_S, unknown=frozenset({"mlp"}))
    assert end_links(state(LAST_START + 1.0), unknown) == ((), LIMIT_S - LEAVING_S)
    ((cut,), _) = end_links(state(LIMIT_S), unknown)
    assert cut.at == "now"


def test_a_clock_that_is_set_back_ends_the_link_at_this_epoch_and_one_set_forward_cuts_it_once() -> (
    None
):
    assert stops(state(-3600.0)) == [("team/chain", "epoch", "link_ends")]
    assert stops(state(7 * 86_400.0)) == [("team/chain", "now", "link_cut")]
    assert stops(state(7 * 86_400.0 + 60.0, resumed_at=7 * 86_400.0)) == []


def test_the_service_wakes_when_a_link_is_to_be_asked_and_when_it_is_to_be_cut() -> None:
    early = state(100.0)
    plan = with_follow_ups(lambda *_: Plan())(early, PREDICTOR)
    assert plan.wake_at == pytest.approx(LIMIT_S - LEAVING_S - EPOCH_MARGIN * EPOCH_S)
    assert not [d for d in plan.decisions if isinstance(d, Preempt | Resize)]
