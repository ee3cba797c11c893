"""What every World must do with a plan, simulated or live.

A Stage is a World with a way to submit jobs and to let time pass. Live Worlds sit live_world_exam
too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pytest

from laxity_scheduler.engine import World
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import (
    Admit,
    Continue,
    Decision,
    Forecasted,
    Preempt,
    Promised,
    Refuse,
    Resize,
)
from laxity_scheduler.model.job import Forecast, Job, Offer, Promise, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import PlanError, check_plan

WHY = reason("order", policy="exam")


class Stage(Protocol):
    """A World over nodes "a" and "b" with 4 free GPUs each."""

    @property
    def world(self) -> World: ...

    def submit(
        self, name: str, *, widths: Sequence[int] = (1, 2, 4), stop_s: float = 0.0, on: str = ""
    ) -> str:
        """A job with one GPU per worker that runs until stopped, `on` one node only; its id."""
        ...

    def until(self, what: Callable[[ClusterState], bool], words: str) -> ClusterState:
        """Let time pass until a snapshot is so; AssertionError with `words` if none comes."""
        ...


Question = Callable[[Any], None]


def named(question: Question) -> str:
    return question.__name__.replace("_", " ")


def do(stage: Stage, *decisions: Decision) -> Plan:
    """Observe, check and carry out, as a cycle does."""
    state = stage.world.observe()
    plan = Plan(decisions)
    check_plan(plan, state)
    stage.world.carry_out(plan)
    return plan


def admit(stage: Stage, job_id: str, *nodes: str) -> ClusterState:
    """Start a job on the nodes and wait until it is seen to run there, with no pod missing."""
    do(stage, Admit(job_id, len(nodes), nodes, WHY))
    return stage.until(
        lambda state: (
            state.by_id[job_id].workers == len(nodes)
            and state.by_id[job_id].start_seen
            and set(state.by_id[job_id].nodes) <= set(nodes)
        ),
        f"{job_id} runs on {nodes}",
    )


def row(state: ClusterState, job_id: str) -> Job:
    return state.by_id[job_id]


def free(state: ClusterState) -> dict[str, int]:
    return {node.id: node.free_gpus for node in state.nodes}


def a_new_job_is_queued_and_holds_nothing(stage: Stage) -> None:
    job_id = stage.submit("new", widths=(1, 2))
    state = stage.until(lambda state: job_id in state.by_id, "it is seen")
    job = row(state, job_id)
    assert state.queued == (job,)
    assert (job.workers, job.widths, job.verdict, job.asked) == (0, (1, 2), None, True)
    assert free(state) == {"a": 4, "b": 4}


def an_admitted_job_has_its_workers_and_their_gpus_at_once(stage: Stage) -> None:
    job_id = stage.submit("admitted")
    do(stage, Admit(job_id, 2, ("a", "a"), WHY))
    state = stage.world.observe()
    assert (row(state, job_id).workers, row(state, job_id).nodes) == (2, ("a", "a"))
    assert free(state) == {"a": 2, "b": 4}
    assert row(state, job_id).resumed_at is not None


def workers_sit_on_the_nodes_that_were_named(stage: Stage) -> None:
    first, second = stage.submit("first"), stage.submit("second")
    admit(stage, first, "b", "b")
    admit(stage, second, "b")
    state = stage.world.observe()
    assert free(state) == {"a": 4, "b": 1}
    assert (row(state, first).nodes, row(state, second).nodes) == (("b", "b"), ("b",))


def a_plan_carried_out_twice_is_the_same_as_once(stage: Stage) -> None:
    job_id = stage.submit("twice")
    plan = do(stage, Admit(job_id, 2, ("a", "a"), WHY))
    stage.world.carry_out(plan)
    state = stage.world.observe()
    assert (row(state, job_id).workers, row(state, job_id).preemptions) == (2, 0)
    assert free(state) == {"a": 2, "b": 4}


def growth_takes_gpus_at_once_and_shrinking_gives_them_back(stage: Stage) -> None:
    job_id = stage.submit("elastic")
    admit(stage, job_id, "a")
    do(stage, Resize(job_id, 4, ("a", "a", "a", "a"), "now", WHY))
    assert free(stage.world.observe())["a"] == 0
    stage.until(lambda state: row(state, job_id).workers == 4, "it has grown")
    do(stage, Resize(job_id, 2, ("a", "a"), "now", WHY))
    state = stage.until(lambda state: not row(state, job_id).terminating_workers, "two have gone")
    assert row(state, job_id).workers == 2
    assert free(state)["a"] == 2


def gpus_of_a_stopped_job_are_free_only_when_its_pods_are_gone(stage: Stage) -> None:
    job_id = stage.submit("slow-to-stop", stop_s=3.0)
    admit(stage, job_id, "a", "a")
    do(stage, Preempt(job_id, "now", "", WHY))
    stopping = stage.world.observe()
    assert (row(stopping, job_id).workers, row(stopping, job_id).terminating_workers) == (0, 2)
    assert free(stopping)["a"] == 2
    assert stopping.queued == ()
    state = stage.until(lambda state: not row(state, job_id).terminating_workers, "it has gone")
    assert free(state)["a"] == 4
    assert row(state, job_id).preemptions == 1


def a_stop_at_the_epochs_end_is_asked_for_and_the_job_runs_on(stage: Stage) -> None:
    job_id, other = stage.submit("asked"), stage.submit("waiting")
    admit(stage, job_id, "a")
    do(stage, Preempt(job_id, "epoch", other, WHY))
    job = row(stage.world.observe(), job_id)
    assert (job.workers, job.stop_for) == (1, other)
    assert job.stop_requested_at is not None


def a_stop_that_is_taken_back_is_asked_for_no_more(stage: Stage) -> None:
    job_id, other = stage.submit("spared"), stage.submit("waiting")
    admit(stage, job_id, "a")
    do(stage, Preempt(job_id, "epoch", other, WHY))
    do(stage, Continue(job_id, WHY))
    job = row(stage.world.observe(), job_id)
    assert (job.workers, job.stop_requested_at, job.stop_for) == (1, None, "")


def a_smaller_width_at_the_epochs_end_is_asked_for_and_nobody_leaves(stage: Stage) -> None:
    job_id = stage.submit("narrower")
    admit(stage, job_id, "a", "a")
    do(stage, Resize(job_id, 1, ("a",), "epoch", WHY))
    job = row(stage.world.observe(), job_id)
    assert (job.workers, job.resize_to, job.terminating_workers) == (2, 1, 0)


def a_job_asked_for_some_workers_may_be_asked_for_all(stage: Stage) -> None:
    job_id, other = stage.submit("some"), stage.submit("waiting")
    admit(stage, job_id, "a", "a")
    do(stage, Resize(job_id, 1, ("a",), "epoch", WHY))
    do(stage, Preempt(job_id, "epoch", other, WHY))
    job = row(stage.world.observe(), job_id)
    assert (job.workers, job.stop_for) == (2, other)
    assert job.stop_requested_at is not None


def freed_gpus_are_held_for_whom_they_were_freed_until_it_starts(stage: Stage) -> None:
    victim, other = stage.submit("victim", stop_s=0.3), stage.submit("beneficiary")
    admit(stage, victim, "a", "a")
    do(stage, Preempt(victim, "now", other, WHY))
    state = stage.until(lambda state: not row(state, victim).terminating_workers, "it has gone")
    assert [(hold.job, hold.node, hold.gpus) for hold in state.holds] == [(other, "a", 2)]
    admit(stage, other, "a", "a")
    assert stage.world.observe().holds == ()


def what_is_held_for_one_that_runs_is_so_until_another_takes_it(stage: Stage) -> None:
    runs, victim = stage.submit("runs"), stage.submit("victim", stop_s=0.3)
    other = stage.submit("other")
    admit(stage, runs, "b")
    admit(stage, victim, "a", "a", "a", "a")
    do(stage, Preempt(victim, "now", runs, WHY))
    state = stage.until(lambda state: not row(state, victim).terminating_workers, "it has gone")
    assert [(hold.job, hold.node, hold.gpus) for hold in state.holds] == [(runs, "a", 4)]
    admit(stage, other, "a", "a")
    assert [hold.gpus for hold in stage.world.observe().holds] == [2]


def a_stopped_job_is_resumed_with_its_history(stage: Stage) -> None:
    job_id = stage.submit("resumed")
    admit(stage, job_id, "a")
    do(stage, Preempt(job_id, "now", "", WHY))
    stopped = stage.until(lambda state: not row(state, job_id).terminating_workers, "it has gone")
    admit(stage, job_id, "b", "b")
    job = row(stage.world.observe(), job_id)
    assert (job.workers, job.preemptions, job.nodes) == (2, 1, ("b", "b"))
    assert job.attained_gpu_s >= row(stopped, job_id).attained_gpu_s
    assert job.stop_requested_at is None


def verdicts_are_read_back_as_they_were_given(stage: Stage) -> None:
    told = {
        stage.submit("promised"): Promise(9e9, 1e9, 2e9, ((3e9, 2), (4e9, 4)), WHY, ("history",)),
        stage.submit("forecast"): Forecast(1e9, float("inf"), 0.0, WHY),
        stage.submit("refused"): Refusal(WHY, (Offer("deadline", 5e9, (1,), 4e9, 1e9),), 5e9),
    }
    kinds: Mapping[type, Callable[[str, Any], Decision]] = {
        Promise: lambda job, found: Promised(job, found, WHY),
        Forecast: lambda job, found: Forecasted(job, found, WHY),
        Refusal: lambda job, found: Refuse(job, found, WHY),
    }
    do(stage, *(kinds[type(verdict)](job_id, verdict) for job_id, verdict in told.items()))
    state = stage.world.observe()
    assert {job.id: job.verdict for job in state.jobs} == told
    assert not any(job.asked for job in state.jobs)
    startable = {job_id for job_id, verdict in told.items() if not isinstance(verdict, Refusal)}
    assert {job.id for job in state.queued} == startable


def a_job_that_may_use_some_nodes_only_is_started_on_no_other(stage: Stage) -> None:
    tied, free_one = stage.submit("tied", on="b"), stage.submit("free")
    state = stage.until(lambda state: {tied, free_one} <= state.by_id.keys(), "both are seen")
    assert state.eligible_nodes(row(state, tied)) == frozenset({"b"})
    assert state.eligible_nodes(row(state, free_one)) is None
    with pytest.raises(PlanError, match="may not use a"):
        do(stage, Admit(tied, 1, ("a",), WHY))
    assert row(admit(stage, tied, "b"), tied).nodes == ("b",)
    state = admit(stage, free_one, "a")
    assert state.eligible_nodes(row(state, tied)) == frozenset({"b"}), "as it runs, too"


def an_empty_plan_changes_nothing(stage: Stage) -> None:
    job_id = stage.submit("left-alone")
    admit(stage, job_id, "a")
    before = stage.world.observe()
    stage.world.carry_out(Plan())
    after = stage.world.observe()
    assert (after.jobs, after.nodes, after.holds) == (before.jobs, before.nodes, before.holds)


EXAM: tuple[Question, ...] = (
    a_new_job_is_queued_and_holds_nothing,
    an_admitted_job_has_its_workers_and_their_gpus_at_once,
    workers_sit_on_the_nodes_that_were_named,
    a_plan_carried_out_twice_is_the_same_as_once,
    growth_takes_gpus_at_once_and_shrinking_gives_them_back,
    gpus_of_a_stopped_job_are_free_only_when_its_pods_are_gone,
    a_stop_at_the_epochs_end_is_asked_for_and_the_job_runs_on,
    a_stop_that_is_taken_back_is_asked_for_no_more,
    a_smaller_width_at_the_epochs_end_is_asked_for_and_nobody_leaves,
    a_job_asked_for_some_workers_may_be_asked_for_all,
    freed_gpus_are_held_for_whom_they_were_freed_until_it_starts,
    what_is_held_for_one_that_runs_is_so_until_another_takes_it,
    a_stopped_job_is_resumed_with_its_history,
    verdicts_are_read_back_as_they_were_given,
    a_job_that_may_use_some_nodes_only_is_started_on_no_other,
    an_empty_plan_changes_nothing,
)
