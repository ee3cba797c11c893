"""A job that holds no state is stopped last, never resized, and a stop costs it all its epochs."""

from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.link_end import LEAVING_S
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Preempt, Promised, Refuse, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.plan_application import apply_decisions
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.registry import find
from tests.support.builders import Curve, cluster, job, node, promised

NOW = 1_000.0
STEPS = Curve(start_s=5.0, stop_s=5.0)
STATELESS: dict[str, Any] = {"holds_state": False}


def running(name: str, *, epochs: int = 20, done: int = 8, width: int = 1, **more: Any) -> Job:
    """In the middle of an epoch of a minute, started long ago."""
    given: dict[str, Any] = {"epoch_started_at": NOW - 30.0, "workers": (width,)} | more
    return job(name, epochs=epochs, done=done, running=width, **given)


def decided(state: ClusterState, policy: str = "qos") -> Plan:
    plan = with_follow_ups(find(policy).policy())(state, STEPS)
    check_plan(plan, state)
    return plan


def stopped(plan: Plan) -> dict[str, str]:
    return {d.job: d.reason.code for d in plan.decisions if isinstance(d, Preempt)}


def promises(plan: Plan) -> list[str]:
    return [d.job for d in plan.decisions if isinstance(d, Promised)]


def hot(within_s: float, **more: Any) -> Job:
    """Three minutes of work that must be done so soon."""
    return job("hot", epochs=3, due_at=NOW + within_s, submitted_at=NOW, queued_at=NOW, **more)


def test_another_job_is_stopped_though_it_costs_more() -> None:
    cheap = running("stateless", done=1, **STATELESS)
    dear = running("stateful", epochs=500, done=100)
    state = cluster(gpus=2, now=NOW, jobs=[cheap, dear, hot(300.0)])

    plan = decided(state)

    assert stopped(plan) == {"team/stateful": "preempt_for"}
    assert promises(plan) == ["team/hot"]


def test_nobody_is_stopped_where_a_deadline_can_wait_for_its_end() -> None:
    stateless = running("stateless", epochs=12, done=8, **STATELESS)  # 3.5 minutes are left
    state = cluster(gpus=1, now=NOW, jobs=[stateless, hot(600.0)])

    plan = decided(state)

    assert (stopped(plan), promises(plan)) == ({}, ["team/hot"])


def test_a_hard_deadline_that_nothing_else_keeps_stops_it_and_says_what_is_lost() -> None:
    state = cluster(gpus=1, now=NOW, jobs=[running("stateless", **STATELESS), hot(300.0)])

    plan = decided(state)

    assert promises(plan) == ["team/hot"]
    (stop,) = (d for d in plan.decisions if isinstance(d, Preempt))
    assert (stop.job, stop.beneficiary) == ("team/stateless", "team/hot")
    assert "holds no state, so its 8 epochs are lost" in stop.reason.text


def test_of_several_without_state_the_one_that_loses_least_is_stopped() -> None:
    jobs = [running("long", done=12, **STATELESS), running("short", done=3, **STATELESS)]

    plan = decided(cluster(gpus=2, now=NOW, jobs=[*jobs, hot(300.0)]))

    assert stopped(plan) == {"team/short": "preempt_stateless"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"service_class": "soft", "deadline_at": NOW + 215.0}, id="soft"),
        pytest.param({"submitted_at": 0.0, "queued_at": -1e6}, id="best effort that waits long"),
    ],
)
def test_it_is_not_stopped_for_a_job_without_a_hard_deadline(other: dict[str, Any]) -> None:
    waits = job(
        "waits", epochs=3, **{"submitted_at": NOW, "queued_at": NOW, "asked": False} | other
    )
    victims = [
        stopped(
            decided(cluster(gpus=1, now=NOW, jobs=[running("runs", epochs=500, **more), waits]))
        )
        for more in ({}, STATELESS)
    ]

    assert list(map(list, victims)) == [["team/runs"], []]


def test_while_it_is_stopped_for_a_hard_job_no_other_stateless_one_is_for_a_soft_one() -> None:
    jobs = [running(f"s{n}", epochs=500, done=5 + n, **STATELESS) for n in range(2)]
    soft = job(
        "soft", epochs=3, service_class="soft", deadline_at=NOW + 300.0, submitted_at=NOW,
        queued_at=NOW,
    )  # fmt: skip

    plan = decided(cluster(gpus=2, now=NOW, jobs=[*jobs, soft, hot(300.0)]))

    assert stopped(plan) == {"team/s0": "preempt_stateless"}


def test_a_promise_that_leaves_too_little_time_is_kept_by_letting_it_run() -> None:
    mine = promised(
        "mine",
        NOW + 1_200.0,
        epochs=20,
        done=8,
        running=1,
        epoch_started_at=NOW - 30.0,
        **STATELESS,
    )

    plan = decided(cluster(gpus=1, now=NOW, jobs=[mine, hot(300.0)]))

    assert stopped(plan) == {}
    assert [d.job for d in plan.decisions if isinstance(d, Refuse)] == ["team/hot"]


def test_a_promise_that_leaves_time_for_all_its_epochs_makes_way_at_last() -> None:
    mine = promised(
        "mine",
        NOW + 7_200.0,
        epochs=20,
        done=8,
        running=1,
        epoch_started_at=NOW - 30.0,
        **STATELESS,
    )
    plan = decided(cluster(gpus=1, now=NOW, jobs=[mine, hot(300.0)]))
    assert stopped(plan) == {"team/mine": "preempt_stateless"}

    moved = {d.job: d.promise.p90_at for d in plan.decisions if isinstance(d, Promised)}
    after_the_other = NOW + 30.0 + 5.0 + 5.0 + 3 * 60.0
    assert after_the_other + 20 * 60.0 <= moved["team/mine"] <= NOW + 7_200.0


def test_known_before_it_starts_it_starts_only_where_it_is_in_nobodys_way() -> None:
    """A promised job needs the GPU in five minutes: what takes ten would have to be stopped."""
    first = promised("first", NOW + 400.0, epochs=5, done=0, running=1, epoch_started_at=NOW)
    due = promised("due", NOW + 480.0, epochs=3, workers=(2,))
    waits = job("waits", epochs=10, submitted_at=NOW, queued_at=NOW, asked=False)
    begins = [
        [
            d.job
            for d in decided(cluster(gpus=2, now=NOW, jobs=jobs)).decisions
            if isinstance(d, Admit)
        ]
        for jobs in ([first, due, waits], [first, due, replace(waits, holds_state=False)])
    ]

    assert begins == [["team/waits"], []]


def test_stateful_jobs_make_way_as_before_while_a_stateless_one_runs_elsewhere() -> None:
    jobs = [running("stateful", epochs=500), hot(300.0)]
    alone = decided(cluster(gpus=1, now=NOW, jobs=jobs))
    beside = running("stateless", nodes=("n1",), **STATELESS)

    plan = decided(cluster(gpus=[1, 1], now=NOW, jobs=[*jobs, beside]))

    assert stopped(plan) == stopped(alone) == {"team/stateful": "preempt_for"}


@pytest.mark.parametrize(
    "policy", ["qos", "elasticflow", "optimus", "pollux", "aryl", "edf_elastic"]
)
def test_no_policy_widens_narrows_or_stops_it_for_idle_or_waiting_jobs(policy: str) -> None:
    widths = (1, 2, 4)
    alone = cluster(gpus=4, now=NOW, jobs=[running("a", epochs=500, workers=widths, **STATELESS)])
    crowd = [job(f"w{n}", epochs=50, submitted_at=NOW, queued_at=NOW) for n in range(6)]
    wide = job(
        "a", epochs=500, done=8, running=4, workers=widths, epoch_started_at=NOW - 30.0, **STATELESS
    )

    assert _acts_on_a(decided(alone, policy)) == []
    assert _acts_on_a(decided(cluster(gpus=4, now=NOW, jobs=[wide, *crowd]), policy)) == []


def _acts_on_a(plan: Plan) -> list[Any]:
    return [d for d in plan.decisions if isinstance(d, Preempt | Resize) and d.job == "team/a"]


@pytest.mark.parametrize("policy", ["srtf", "las", "pickyman", "chronus"])
def test_policies_without_promises_let_it_run(policy: str) -> None:
    long = running("a", epochs=10_000, done=500, attained_gpu_s=1e6, since=NOW, **STATELESS)
    short = job("short", epochs=1, submitted_at=NOW, queued_at=NOW)

    plan = decided(cluster(gpus=1, now=NOW, jobs=[long, short]), policy)

    assert stopped(plan) == {}


def test_it_stays_on_a_cordoned_node_until_it_ends() -> None:
    row = running("a", **STATELESS)
    state = cluster(gpus=[1, 1], now=NOW, jobs=[row])
    cordoned = ClusterState(
        now=NOW, jobs=state.jobs, nodes=(node("n0", 1, free_gpus=0, pool="cordoned"), node("n1", 1))
    )

    assert stopped(decided(cordoned)) == {}


def test_asked_to_stop_it_is_expected_to_train_all_epochs_again() -> None:
    asked: dict[str, Any] = {"stop_requested_at": NOW - 1.0, "stop_for": "team/hot"}
    rows = [running("a", **asked), running("b", **asked, **STATELESS)]
    forecasts = Forecasts(cluster(gpus=2, now=NOW, jobs=rows), STEPS)
    free_s = 30.0 + 5.0  # the rest of the epoch, and the stop

    assert forecasts.trajectory_s(rows[0]) == pytest.approx(free_s + 5.0 + 11 * 60.0)
    assert forecasts.trajectory_s(rows[1]) == pytest.approx(free_s + 5.0 + 20 * 60.0)


@pytest.mark.parametrize("steps", [[(0.0, 0), (300.0, 1)], [(0.0, 2)]], ids=["stopped", "resized"])
def test_a_plan_that_stops_or_resizes_it_counts_all_epochs(steps: list[tuple[float, int]]) -> None:
    row = running("a", workers=(1, 2), **STATELESS)
    forecasts = Forecasts(cluster(gpus=2, now=NOW, jobs=[row]), STEPS)

    finish_s = forecasts.finish_s(row, steps)

    width = steps[-1][1]
    begins_s = max(30.0, steps[-1][0]) + 5.0  # at an epoch's end, when it is free; and the start
    assert finish_s == pytest.approx(begins_s + 20 * 60.0 / width)


def test_in_its_last_epoch_a_stop_at_its_end_loses_nothing() -> None:
    last = running("a", done=19, stop_requested_at=NOW - 1.0, stop_for="team/hot", **STATELESS)

    assert Forecasts(cluster(gpus=1, now=NOW, jobs=[last]), STEPS).trajectory_s(last) == 35.0


def test_stopped_it_is_at_epoch_0_in_what_ifs() -> None:
    rows = [running("a"), running("b", **STATELESS)]
    state = cluster(gpus=2, now=NOW, jobs=rows)
    stops = [Preempt(row.id, "now", "", reason("node_lost", node="n0")) for row in rows]

    after = apply_decisions(state, stops)

    assert [row.progress.epochs_done for row in after.jobs] == [8, 0]


def test_parked_it_is_said_to_begin_anew() -> None:
    parked: dict[str, Any] = {"stop_requested_at": NOW, "stop_for": "team/hot", "parked_epoch": 9}

    plan = decided(cluster(gpus=1, now=NOW, jobs=[running("a", **parked, **STATELESS), hot(300.0)]))

    (stop,) = (d for d in plan.decisions if isinstance(d, Preempt))
    assert (stop.at, stop.reason.code) == ("now", "stopped_stateless")
    assert "begins at epoch 1 again" in stop.reason.text


def test_its_link_runs_to_the_limit_and_is_lost() -> None:
    limit_s = 3_600.0
    chained: dict[str, Any] = {
        "wall_limit_s": limit_s,
        "resumed_at": 0.0,
        "epochs": 1_000,
        "done": 10,
    }
    late = running("a", epoch_started_at=limit_s - 90.0, **chained, **STATELESS)

    def at(now: float) -> dict[str, str]:
        return stopped(decided(cluster(gpus=1, now=now, jobs=[late])))

    assert at(limit_s - LEAVING_S - 1.0) == {}, "it is not asked to stop at an epoch's end"
    assert at(limit_s - LEAVING_S) == {"team/a": "link_lost"}


def test_an_end_is_foreseen_only_where_all_epochs_fit_into_one_link() -> None:
    rows = [
        job(name, epochs=epochs, wall_limit_s=700.0, **STATELESS)
        for name, epochs in (("fits", 11), ("never", 12))
    ]
    forecasts = Forecasts(cluster(gpus=1, jobs=rows), STEPS)

    ends = [forecasts.rest_s(row, 1) for row in rows]

    assert ends == [665.0, float("inf")]
