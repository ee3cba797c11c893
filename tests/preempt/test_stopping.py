"""Who is stopped for whom, when, and what follows once the workers have done their part."""

from dataclasses import replace
from typing import Any

import pytest

from laxity_profiler.estimate import Progress
from laxity_scheduler.inflight import follow_ups, overdue_at, with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Decision, Preempt, Resize, Wait
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import PlanError, apply_plan, check_plan
from laxity_scheduler.policies import fifo
from laxity_scheduler.policies.qos import QosPolicy, decide
from laxity_scheduler.promising.claims import MOST_STOPS
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised


def preempted(plan: Plan) -> list[Preempt]:
    return [one for one in plan.decisions if isinstance(one, Preempt)]


def waits(plan: Plan) -> dict[str, Wait]:
    return {one.job: one for one in plan.decisions if isinstance(one, Wait)}


def test_a_promised_job_that_cannot_wait_stops_a_best_effort_job_at_its_epochs_end() -> None:
    state = cluster(gpus=1, jobs=[job("be", running=1), job("hard", due_at=700.0)], now=30.0)
    plan = decide(state, MINUTE_EPOCHS)
    assert [(one.job, one.at, one.beneficiary) for one in preempted(plan)] == [
        ("team/be", "epoch", "team/hard")
    ]
    wait = waits(plan)["team/hard"]
    assert wait.reason.text == "it waits until team/be reaches the end of its epoch"
    assert wait.held_by == ("team/be",)
    assert wait.expected_start_at == pytest.approx(60.0)


def test_a_promised_job_with_time_waits_for_the_end_of_others_and_looks_again_in_time() -> None:
    state = cluster(gpus=1, jobs=[job("be", running=1), promised("hard", 4000.0)])
    plan = decide(state, MINUTE_EPOCHS)
    assert preempted(plan) == []
    assert plan.wake_at == pytest.approx(1400.0)
    later = replace(state, now=plan.wake_at + 1.0)
    assert [one.job for one in preempted(decide(later, MINUTE_EPOCHS))] == ["team/be"]


def test_best_effort_jobs_are_stopped_before_soft_ones() -> None:
    soft = job("soft", running=1, due_at=5000.0, service_class="soft", epoch_started_at=20.0)
    jobs = [soft, job("be", running=1), job("hard", due_at=700.0)]
    plan = decide(cluster(gpus=2, jobs=jobs, now=30.0), MINUTE_EPOCHS)
    assert [one.job for one in preempted(plan)] == ["team/be"]


def test_jobs_wider_than_they_need_give_before_anybody_is_stopped() -> None:
    jobs = [job("wide", running=2, workers=(1, 2)), job("hard", due_at=700.0)]
    plan = decide(cluster(gpus=2, jobs=jobs, now=30.0), MINUTE_EPOCHS)
    assert preempted(plan) == []
    shrunk = [one for one in plan.decisions if isinstance(one, Resize)]
    assert [(one.job, one.workers, one.at) for one in shrunk] == [("team/wide", 1, "epoch")]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"preemptible": False}, id="it may not be stopped"),
        pytest.param({"pinned": True}, id="it is pinned"),
    ],
)
def test_what_may_not_be_stopped_runs_on(fields: dict[str, Any]) -> None:
    state = cluster(gpus=1, jobs=[job("be", running=1, **fields), promised("hard", 700.0)])
    assert preempted(decide(state, MINUTE_EPOCHS)) == []


def test_a_job_that_may_not_be_stopped_keeps_its_width_where_it_would_give_cheapest() -> None:
    """Its epoch ends in 10 s, that of the other in 55 s."""
    firm = job("firm", running=2, workers=(1, 2), preemptible=False, epoch_started_at=-20.0)
    gives = job("gives", running=2, workers=(1, 2), epoch_started_at=25.0)
    state = cluster(gpus=4, jobs=[firm, gives, promised("hard", 700.0)], now=30.0)
    plan = decide(state, MINUTE_EPOCHS)
    changed = [one.job for one in plan.decisions if isinstance(one, Preempt | Resize)]
    assert changed == ["team/gives"]


def test_an_aged_job_has_another_stopped_where_promises_wait_for_one_another_as_well() -> None:
    waits = promised("waits", 4000.0, workers=(2,))
    long, short = job("long", epochs=500, running=1), job("short", epochs=1, asked=False)
    jobs = [promised("runs", 4000.0, running=1), waits, long, short]
    plan = decide(cluster(gpus=2, jobs=jobs, now=600.0), MINUTE_EPOCHS)
    stops = [(one.job, one.beneficiary, one.reason.code) for one in preempted(plan)]
    assert stops == [("team/long", "team/short", "preempt_for_aged")]


def test_a_best_effort_job_never_stops_another_before_it_has_aged() -> None:
    jobs = [job("long", epochs=500, running=1), job("short", epochs=1, asked=False)]
    fresh = decide(cluster(gpus=1, jobs=jobs, now=599.0), MINUTE_EPOCHS)
    assert preempted(fresh) == []
    assert fresh.wake_at == 600.0
    aged = decide(cluster(gpus=1, jobs=jobs, now=600.0), MINUTE_EPOCHS)
    assert [one.reason.code for one in preempted(aged)] == ["preempt_for_aged"]


def test_a_job_that_was_stopped_often_is_not_stopped_for_an_aged_one() -> None:
    jobs = [job("tired", epochs=500, running=1, preemptions=MOST_STOPS), job("old", asked=False)]
    assert preempted(decide(cluster(gpus=1, jobs=jobs, now=9e3), MINUTE_EPOCHS)) == []


def test_an_epoch_without_end_is_cut_short_when_a_promise_cannot_wait() -> None:
    slow = Curve(epoch_s=10_000.0, models={"quick": 60.0}, start_s=10.0, stop_s=5.0)
    jobs = [job("be", running=1), promised("hard", 800.0, model="quick")]
    plan = decide(cluster(gpus=1, jobs=jobs, now=100.0), slow)
    assert [(one.job, one.at) for one in preempted(plan)] == [("team/be", "now")]


def test_a_job_past_its_deadline_that_asked_to_stop_is_stopped_then_refused() -> None:
    late = promised("late", 100.0, running=1, on_miss="stop")
    plan = decide(cluster(gpus=1, jobs=[late], now=101.0), MINUTE_EPOCHS)
    assert [one.reason.code for one in preempted(plan)] == ["missed_and_stopped"]
    stopped = promised("late", 100.0, on_miss="stop")
    state = cluster(gpus=1, jobs=[stopped], now=200.0)
    after = apply_plan(decide(state, MINUTE_EPOCHS), state).by_id["team/late"]
    assert after.refused
    assert after.workers == 0


# --- follow-ups ---


def followed(*jobs: Job, now: float = 100.0) -> tuple[Decision, ...]:
    return follow_ups(cluster(gpus=8, jobs=[*jobs, job("other")], now=now))


def test_a_parked_job_is_suspended_for_whom_it_stopped() -> None:
    parked = job("a", running=1, parked_epoch=4, stop_requested_at=50.0, stop_for="team/other")
    (found,) = followed(parked)
    assert isinstance(found, Preempt)
    assert (found.at, found.beneficiary) == ("now", "team/other")
    assert found.reason.text == "saved at the end of epoch 4: it stops for team/other"


def test_nothing_is_held_for_a_job_that_started_meanwhile() -> None:
    parked = job("a", running=1, parked_epoch=4, stop_requested_at=50.0, stop_for="team/b")
    (found,) = followed(parked, job("b", running=1, resumed_at=60.0))
    assert isinstance(found, Preempt)
    assert found.beneficiary == ""


def test_re_formed_workers_let_the_others_go() -> None:
    shrinks = job("a", running=4, workers=(2, 4), formed=2, resize_to=2)
    (found,) = followed(shrinks)
    assert isinstance(found, Resize)
    assert (found.workers, found.nodes, found.at) == (2, ("n0", "n0"), "now")


def test_a_job_that_has_not_re_formed_yet_is_left_alone() -> None:
    assert followed(job("a", running=4, workers=(2, 4), resize_to=2)) == ()


@pytest.mark.parametrize(
    ("epoch_s", "after_s"),
    [
        pytest.param((), 3 * 3600.0, id="epochs of unknown length"),
        pytest.param((10.0, 20.0), 600.0, id="short epochs"),
        pytest.param((1000.0, 900.0), 3000.0, id="long epochs"),
    ],
)
def test_a_stop_is_overdue_after_a_few_epochs(epoch_s: tuple[float, ...], after_s: float) -> None:
    asked = job("a", running=1, stop_requested_at=100.0, progress=Progress(5, epoch_s, ()))
    assert overdue_at(asked) == 100.0 + after_s
    assert followed(asked, now=99.0 + after_s) == ()
    (found,) = followed(asked, now=100.0 + after_s)
    assert isinstance(found, Preempt)
    assert found.reason.code == "stop_overdue"


def test_a_job_on_a_lost_node_is_stopped() -> None:
    (found,) = followed(job("a", running=2, workers=(2,), nodes=("n0", "n7")))
    assert found.reason.text == "node n7 is gone"


@pytest.mark.parametrize(
    ("fits", "kind"),
    [pytest.param(2, Resize, id="an allowed width"), pytest.param(3, Preempt, id="no width")],
)
def test_pods_that_do_not_all_fit(fits: int, kind: type) -> None:
    (found,) = followed(job("a", running=4, workers=(1, 2, 4), fitting_workers=fits))
    assert isinstance(found, kind)
    assert found.reason.code == "pods_do_not_fit"


def test_what_a_pod_waits_for_is_told() -> None:
    why = "worker 0 has no node: 0/5 nodes are available"
    (found,) = followed(job("a", running=2, workers=(1, 2), fitting_workers=0, pending=why))
    wanted = f"only 0 of 2 pods ran in the time that they have for it: {why}"
    assert (found.reason.code, found.reason.text) == ("pods_do_not_fit", wanted)
    (found,) = followed(job("a", running=2, workers=(1, 2), fitting_workers=0))
    assert found.reason.text == "only 0 of 2 pods ran in the time that they have for it"


def test_workers_that_fail_are_not_said_to_be_pods_that_do_not_fit() -> None:
    died = "worker 0 failed with exit code 1: ImportError: no module named x"
    (found,) = followed(job("a", running=2, workers=(1, 2), fitting_workers=0, died=died))
    assert isinstance(found, Preempt)
    assert found.reason.text == f"only 0 of 2 workers run: {died}"


def test_any_policy_can_be_followed_up_and_wakes_for_an_overdue_stop() -> None:
    asked = job("a", running=1, stop_requested_at=0.0, progress=Progress(5, (10.0,), (1,)))
    state: ClusterState = cluster(gpus=1, jobs=[asked, job("b")], now=10.0)
    plan = with_follow_ups(fifo.decide)(state, MINUTE_EPOCHS)
    assert plan.wake_at == 600.0
    assert preempted(with_follow_ups(fifo.decide)(replace(state, now=600.0), MINUTE_EPOCHS))


def test_an_impatient_policy_stops_others_at_once() -> None:
    state = cluster(gpus=1, jobs=[job("be", running=1), promised("hard", 4000.0)])
    assert preempted(QosPolicy(patience=1.0)(state, MINUTE_EPOCHS))


HASTY = [
    pytest.param({"parked_epoch": 3, "stop_requested_at": 1.0}, id="it waits to be stopped"),
    pytest.param({"nodes": ("lost",)}, id="its node is lost"),
    pytest.param({"fitting_workers": 0}, id="its pods do not start"),
]


@pytest.mark.parametrize("fields", HASTY)
def test_nobody_is_suspended_before_the_start_was_seen_and_then_at_once(
    fields: dict[str, Any],
) -> None:
    """A controller that sees neither start nor stop would leave it open whether pods come."""
    started = job("be", running=1, start_seen=False, **fields)
    state = cluster(gpus=1, jobs=[started], now=30.0)
    plan = with_follow_ups(decide)(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    assert preempted(plan) == []
    seen = replace(state, jobs=(replace(started, start_seen=True),))
    assert [one.at for one in preempted(with_follow_ups(decide)(seen, MINUTE_EPOCHS))] == ["now"]


def test_a_policy_that_suspends_at_once_waits_for_the_start_to_be_seen() -> None:
    started = job("be", running=1, start_seen=False)
    why = reason("order", policy="test")
    stop, ask = (Preempt(started.id, at, "", why) for at in ("now", "epoch"))
    state = cluster(gpus=1, jobs=[started], now=30.0)
    with pytest.raises(PlanError, match="its start was not seen yet"):
        check_plan(Plan((stop,)), state)
    for one, kept in ((stop, ()), (ask, (ask,))):
        plan = with_follow_ups(lambda *_, said=one: Plan((said,)))(state, MINUTE_EPOCHS)
        assert plan.decisions == kept
