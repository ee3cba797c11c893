"""What the share rules tell: new deadlines for promised jobs, plans that grow, unknown models.

Epochs take 60 s on one worker and speed up linearly; nothing costs anything.
"""

from dataclasses import replace
from typing import Any

import pytest

from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.generate import Mix, generate
from laxity_profiler.estimate import Progress
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Preempt, Promised, Refuse, Resize
from laxity_scheduler.model.job import Job, Promise
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies import edf_elastic, elasticflow
from laxity_scheduler.shares.rows import ShareRows
from laxity_scheduler.shares.rule import policy_of
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, node, promise, promised

GREEDY = policy_of(replace(elasticflow.RULE, drops=False))
PROMISING = pytest.mark.parametrize("decide", [elasticflow.decide, GREEDY], ids=["drops", "keeps"])


def told(plan: Plan, name: str = "team/a") -> Promised | Refuse:
    (found,) = [d for d in plan.decisions if isinstance(d, Promised | Refuse) and d.job == name]
    return found


def asks(due_at: float, *, instead_of: float, **fields: Any) -> Job:
    """A promised job of 10 minutes' work whose user asks for another deadline."""
    return job("a", due_at=due_at, verdict=promise(instead_of), asked=True, **fields)


def deadline_after(plan: Plan, state: ClusterState) -> float:
    after = apply_plan(plan, state).by_id["team/a"]
    assert isinstance(after.verdict, Promise)
    assert not after.asked
    return after.verdict.deadline_at


@PROMISING
def test_an_earlier_deadline_that_can_be_kept_is_promised(decide: Policy) -> None:
    state = cluster(gpus=1, jobs=[asks(700.0, instead_of=5_000.0)])
    plan = decide(state, MINUTE_EPOCHS)
    assert isinstance(told(plan), Promised)
    assert deadline_after(plan, state) == 700.0


@PROMISING
def test_an_earlier_deadline_that_cannot_be_kept_is_refused_and_the_old_one_stands(
    decide: Policy,
) -> None:
    """600 s of work: 599 s is too early. Nobody is promised the GPU that the old promise needs."""
    newcomer = job("b", due_at=650.0, submitted_at=1.0)
    state = cluster(gpus=1, jobs=[asks(599.0, instead_of=650.0), newcomer], now=1.0)
    plan = decide(state, MINUTE_EPOCHS)
    refused = told(plan)
    assert refused.reason.code == "deadline_before_fastest_finish"
    assert refused.reason.fact("late_s") == pytest.approx(2.0)
    assert deadline_after(plan, state) == 650.0
    assert apply_plan(plan, state).by_id["team/a"].workers == 1
    assert not isinstance(apply_plan(plan, state).by_id["team/b"].verdict, Promise)


@PROMISING
def test_an_earlier_deadline_that_would_take_what_is_promised_to_another_is_refused(
    decide: Policy,
) -> None:
    kept = promised("kept", 700.0)
    state = cluster(gpus=1, jobs=[asks(900.0, instead_of=5_000.0), kept])
    plan = decide(state, MINUTE_EPOCHS)
    assert told(plan).reason.code == "capacity_promised_to_others"
    assert deadline_after(plan, state) == 5_000.0
    again = decide(apply_plan(plan, state), MINUTE_EPOCHS)
    assert not [d for d in again.decisions if isinstance(d, Promised | Refuse)]


@PROMISING
def test_a_running_job_that_is_refused_an_earlier_deadline_runs_on_with_its_promise(
    decide: Policy,
) -> None:
    state = cluster(gpus=1, jobs=[asks(500.0, instead_of=900.0, running=1)])
    plan = decide(state, MINUTE_EPOCHS)
    assert [type(d) for d in plan.decisions] == [Refuse]
    assert deadline_after(plan, state) == 900.0


@PROMISING
def test_a_later_deadline_is_promised(decide: Policy) -> None:
    state = cluster(gpus=1, jobs=[asks(5_000.0, instead_of=700.0)])
    assert deadline_after(decide(state, MINUTE_EPOCHS), state) == 5_000.0


@PROMISING
def test_a_later_deadline_that_is_still_too_early_is_promised_and_told_to_be_in_danger(
    decide: Policy,
) -> None:
    """It was promised 400 s and would be late by 200 s; by its new deadline it is late by 100 s."""
    state = cluster(gpus=1, jobs=[asks(500.0, instead_of=400.0)])
    verdict = told(decide(state, MINUTE_EPOCHS))
    assert isinstance(verdict, Promised)
    assert (verdict.promise.deadline_at, verdict.promise.p90_at) == (500.0, 600.0)
    assert verdict.reason.code == "promise_in_danger"
    assert verdict.reason.fact("late_s") == 100.0


def test_after_a_refusal_the_promised_deadline_is_the_one_that_is_planned_for() -> None:
    """`a` asked for 600 and was refused: it is planned for 1,300, behind `b`."""
    a = replace(asks(600.0, instead_of=1_300.0), asked=False)
    state = cluster(gpus=1, jobs=[a, promised("b", 650.0)])
    plan = edf_elastic.decide(state, MINUTE_EPOCHS)
    assert [d.job for d in plan.decisions if isinstance(d, Admit)] == ["team/b"]


@PROMISING
def test_a_promise_that_rests_on_growing_later_is_told_in_time(decide: Policy) -> None:
    """One GPU is free until 300 s, then 3: 5 epochs by 300 s, the other 15 on 3 workers by 600 s.

    On the one worker that it has now it would end at 1,200 s.
    """
    other = promised("b", 310.0, epochs=10, running=2, workers=(2,))
    new = job("a", epochs=20, due_at=1_000.0, workers=(1, 3))
    state = cluster(gpus=3, jobs=[other, new])
    plan = decide(state, MINUTE_EPOCHS)
    verdict = told(plan)
    assert isinstance(verdict, Promised)
    assert verdict.promise.p90_at == 1_000.0
    assert [d.workers for d in plan.decisions if isinstance(d, Admit)] == [1]


@pytest.mark.parametrize("name", ["elasticflow", "edf_elastic"])
def test_a_best_effort_job_of_an_unknown_model_starts_where_gpus_are_left(name: str) -> None:
    decide = {"elasticflow": elasticflow, "edf_elastic": edf_elastic}[name].decide
    unknown = Curve(unknown=frozenset({"new"}))
    jobs = [job("new", model="new"), promised("b", 610.0), job("late", due_at=10.0)]
    plan = decide(cluster(gpus=3, jobs=jobs), unknown)
    assert "team/new" in {d.job for d in plan.decisions if isinstance(d, Admit)}


def test_a_width_is_changed_once_at_an_instant() -> None:
    """Admitted at this instant, it does not grow at once, though GPUs are free."""
    just = job("a", workers=(1, 2), running=1, width_changed_at=5.0, resumed_at=5.0)
    state = cluster(gpus=2, jobs=[just], now=5.0)
    assert elasticflow.decide(state, MINUTE_EPOCHS).decisions == ()
    later = elasticflow.decide(replace(state, now=6.0), MINUTE_EPOCHS)
    assert [type(d) for d in later.decisions] == [Resize]


def test_the_order_of_rows_does_not_say_who_is_first() -> None:
    jobs = [job(name, due_at=650.0, submitted_at=float(at)) for at, name in enumerate("cab")]
    state = cluster(gpus=1, jobs=jobs, now=2.0)
    mixed = replace(state, jobs=state.jobs[::-1])
    assert elasticflow.decide(mixed, MINUTE_EPOCHS) == elasticflow.decide(state, MINUTE_EPOCHS)
    assert mixed.in_submission_order == state
    assert state.in_submission_order is state


def test_a_job_whose_epochs_are_all_done_takes_no_time_on_any_width() -> None:
    """Its kind has fewer widths than another, or nobody knows how long its epochs take."""
    unknown = Curve(unknown=frozenset({"new"}))
    done = [replace(job(model, model=model), progress=Progress(10)) for model in ("mlp", "new")]
    wide = job("wide", workers=(1, 2, 4))
    columns = ShareRows(unknown).columns([*done, wide], 0.0)
    assert columns.total[:2, 0].tolist() == [1e-3, 1e-3]
    assert columns.total[:2, 1:].min() == float("inf")


def test_a_job_that_is_stopped_is_told_which_policy_gives_its_gpus_away() -> None:
    runs = job("runs", epochs=100, running=1)
    short = job("short", epochs=1, due_at=130.0, submitted_at=1.0)
    plan = elasticflow.decide(cluster(gpus=1, jobs=[runs, short], now=1.0), MINUTE_EPOCHS)
    (stop,) = [d for d in plan.decisions if isinstance(d, Preempt)]
    assert stop.reason.text == "policy elasticflow gives its 1 GPU to others"


# Who is told to stop or to shrink still counts, until it has done so.


@PROMISING
def test_what_a_job_gives_back_by_shrinking_is_promised_to_the_next(decide: Policy) -> None:
    """Of 2 GPUs one comes back. 10 epochs each, due in 700 s: one GPU is enough for either."""
    shrinks = promised("a", 700.0, workers=(1, 2), running=2, resize_to=1)
    newcomer = job("b", due_at=700.0, submitted_at=1.0)
    state = cluster(gpus=2, jobs=[shrinks, newcomer], now=0.0)
    plan = decide(state, MINUTE_EPOCHS)
    assert isinstance(told(plan, "team/b"), Promised)
    assert not any(isinstance(d, Resize) for d in plan.decisions)  # it has been told already


@PROMISING
def test_what_a_stopping_job_was_promised_is_not_promised_again(decide: Policy) -> None:
    """20 epochs in 700 s take both GPUs, once it has stopped; 6 epochs in 400 s would take one."""
    stops = promised("a", 700.0, epochs=20, workers=(1, 2), running=1, stop_requested_at=0.0)
    newcomer = job("b", epochs=6, due_at=400.0, submitted_at=1.0)
    state = cluster(gpus=2, jobs=[stops, newcomer], now=0.0)
    plan = decide(state, MINUTE_EPOCHS)
    assert not any(isinstance(d, Promised) for d in plan.decisions)


@PROMISING
def test_what_a_job_needs_whose_pods_have_yet_to_go_is_not_promised_to_another(
    decide: Policy,
) -> None:
    """4 GPUs; two still hold its pods. Done in 150 s on all four, due in 200; the newcomer takes 60."""
    leaves = promised("a", 200.0, workers=(4,), terminating_workers=2)
    newcomer = job("b", epochs=2, due_at=100.0, workers=(2,), submitted_at=1.0)
    state = cluster(gpus=4, jobs=[leaves, newcomer], now=1.0)
    state = replace(state, nodes=(node(gpus=4, free_gpus=2),))
    plan = decide(state, MINUTE_EPOCHS)
    assert not [d for d in plan.decisions if isinstance(d, Promised)]
    assert "team/a" not in {d.job for d in plan.decisions if isinstance(d, Admit)}


@PROMISING
def test_gpus_of_pods_that_have_yet_to_go_are_promised_and_not_yet_given(decide: Policy) -> None:
    """The only GPU still holds a pod of a job that was stopped."""
    leaves = job("a", epochs=100, asked=False, terminating_workers=1)
    newcomer = job("b", epochs=2, due_at=300.0, submitted_at=1.0)
    state = cluster(gpus=1, jobs=[leaves, newcomer], now=1.0)
    state = replace(state, nodes=(node(gpus=1, free_gpus=0),))
    plan = decide(state, MINUTE_EPOCHS)
    assert isinstance(told(plan, "team/b"), Promised)
    assert not [d for d in plan.decisions if isinstance(d, Admit)]


@PROMISING
def test_nobody_is_stopped_for_gpus_that_are_on_their_way(decide: Policy) -> None:
    """3 GPUs: one runs, and needs it; two still hold pods of a job that is to have both again."""
    runs = promised("a", 700.0, running=1)
    leaves = promised("b", 350.0, workers=(2,), terminating_workers=2)
    state = cluster(gpus=3, jobs=[runs, leaves], now=1.0)
    state = replace(state, nodes=(node(gpus=3, free_gpus=0),))
    assert decide(state, MINUTE_EPOCHS).decisions == ()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["elasticflow", "edf_elastic"])
def test_stops_do_not_breed_stops_where_they_wait_for_an_epochs_end(policy: str) -> None:
    """30 jobs on 16 GPUs, epochs of 5 minutes: not one stop per job.

    Planned without those that were about to stop, a job was started on what another gave back, told
    to stop as soon as that one counted again, and so on: 204 to 1,571 stops.
    """
    jobs = generate(Mix(jobs=30, jobs_per_hour=20.0), seed=0)
    run = simulate(jobs, Setting(policy, 2, 8, cost_model="live", epoch_s=300.0))
    assert run.column("preemptions").sum() < 30
