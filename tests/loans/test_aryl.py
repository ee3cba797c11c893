"""Aryl: base demand shortest first, the rest by a knapsack with hysteresis."""

import pytest

from laxity_scheduler.allocation.purse import Purse
from laxity_scheduler.allocation.surplus import resizable_jobs
from laxity_scheduler.capacity.ledger import count_free_gpus
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies import aryl
from laxity_scheduler.policies.aryl import decide
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job
from tests.support.random_states import cases, restricted_cases


def widths(state: ClusterState, predictor: Curve = MINUTE_EPOCHS) -> dict[str, int]:
    plan = decide(state, predictor)
    check_plan(plan, state)
    return {
        decision.job: decision.workers
        for decision in plan.decisions
        if isinstance(decision, Admit | Resize)
    }


def test_the_shortest_of_the_waiting_jobs_start_first() -> None:
    jobs = [job("long", epochs=90, workers=(4,)), job("short", epochs=5, workers=(4,))]
    assert widths(cluster(gpus=4, jobs=jobs)) == {"team/short": 4}


def test_base_demand_goes_before_growth() -> None:
    jobs = [job("wide", epochs=90, workers=(1, 4)), job("other", epochs=100, workers=(1,))]
    assert widths(cluster(gpus=4, jobs=jobs)) == {"team/wide": 1, "team/other": 1}


def test_what_is_left_goes_where_it_saves_most() -> None:
    jobs = [job("less", epochs=10, workers=(1, 4)), job("more", epochs=100, workers=(1, 4))]
    assert widths(cluster(gpus=5, jobs=jobs)) == {"team/less": 1, "team/more": 4}


def test_a_knapsack_beats_the_greatest_gain_per_gpu() -> None:
    """Per GPU the first step of `steep` is best, and then nothing else fits."""
    jobs = [job("steep", epochs=60, workers=(1, 2)), job("flat", epochs=100, workers=(1, 3))]
    assert widths(cluster(gpus=4, jobs=jobs)) == {"team/steep": 1, "team/flat": 3}


def test_a_slower_width_is_never_chosen() -> None:
    falls = Curve(speedup={2: 1.5, 4: 1.2})
    assert widths(cluster(gpus=8, jobs=[job("a", workers=(1, 2, 4))]), falls) == {"team/a": 2}


def test_time_to_re_form_counts_against_growth() -> None:
    grows = job("a", epochs=3, workers=(1, 2), running=1)
    assert widths(cluster(gpus=2, jobs=[grows]), Curve(stop_s=30.0)) == {"team/a": 2}
    assert widths(cluster(gpus=2, jobs=[grows]), Curve(stop_s=100.0)) == {}


def test_present_widths_stay_where_others_are_worth_little_more() -> None:
    held = job("held", epochs=100, workers=(1, 3), running=3, nodes=("n0",) * 3)
    other = job("other", epochs=103, workers=(1, 3), running=1)
    assert widths(cluster(gpus=4, jobs=[held, other])) == {}
    longer = job("other", epochs=130, workers=(1, 3), running=1)
    assert widths(cluster(gpus=4, jobs=[held, longer])) == {"team/held": 1}


def test_idle_gpus_are_dealt_out_even_where_present_widths_stay() -> None:
    held = job("held", epochs=1_000, workers=(1, 3), running=3, nodes=("n0",) * 3)
    other = job("other", epochs=20, workers=(1, 2), running=1)
    assert widths(cluster(gpus=5, jobs=[held, other])) == {"team/other": 2}


def test_running_jobs_keep_their_least_width() -> None:
    runs = job("runs", epochs=1_000, workers=(2,), running=2)
    assert widths(cluster(gpus=2, jobs=[runs, job("new", epochs=1, workers=(2,))])) == {}


def test_who_is_left_out_changes_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of one width, and on their widest where all can have theirs; also beyond quotas."""

    def share_out_all(state: ClusterState, _: Forecasts) -> tuple[list[Job], Purse]:
        jobs = resizable_jobs(state)
        return jobs, Purse(state, jobs, count_free_gpus(state) + sum(job.gpus for job in jobs))

    states = [*cases(300), *restricted_cases(150)]
    plans = [decide(case.state, case.predictor) for case in states]
    monkeypatch.setattr(aryl, "_share_out", share_out_all)
    for case, plan in zip(states, plans, strict=True):
        assert decide(case.state, case.predictor) == plan, case.seed
