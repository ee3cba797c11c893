"""A plan is checked against the snapshot it was made on: what does not fit is refused in words."""

import pytest

from laxity_scheduler.model.cluster import ClusterState, Hold
from laxity_scheduler.model.decision import (
    Admit,
    Decision,
    Forecasted,
    Loan,
    Preempt,
    Promised,
    Reclaim,
    Refuse,
    Resize,
    Wait,
    verdict_after,
)
from laxity_scheduler.model.job import Forecast, Promise, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import PlanError, apply_plan, check_plan
from tests.support.builders import cluster, job, node, promise, promised

WHY = reason("order", policy="test")
REFUSAL = Refusal(reason("deadline_in_the_past", due_at=1.0))


def the_cluster() -> ClusterState:
    """n0 of 4 GPUs with one worker on it, n1 of 2; one of n1's is held for q2."""
    jobs = [
        job("runs", running=1, workers=(1, 2)),
        job("wide", running=0, workers=(2, 4), gpus_per_worker=2),
        job("q1", workers=(1, 3)),
        job("q2"),
        job("fixed", running=1, nodes=("n0",), preemptible=False),
        job("pinned", running=1, nodes=("n0",), pinned=True),
        job("refused", verdict=REFUSAL),
        job("leaving", terminating_workers=1),
    ]
    holds = [Hold("team/q2", "n1", 1, 60.0)]
    return cluster(gpus=[4, 2], jobs=jobs, holds=holds)


@pytest.mark.parametrize(
    ("decisions", "words"),
    [
        pytest.param(
            [Admit("team/none", 1, ("n0",), WHY)],
            "Admit of job team/none: no unfinished job has this id",
            id="an unknown job",
        ),
        pytest.param(
            [Admit("team/runs", 1, ("n0",), WHY)], "it is not queued, it has 1 worker", id="it runs"
        ),
        pytest.param(
            [Admit("team/leaving", 1, ("n0",), WHY)], "1 terminating", id="its pods are not gone"
        ),
        pytest.param(
            [Admit("team/refused", 1, ("n0",), WHY)], "it was refused", id="a refused job"
        ),
        pytest.param(
            [
                Refuse("team/q1", REFUSAL, WHY),
                Admit("team/q1", 1, ("n0",), WHY),
            ],
            "it was refused",
            id="refused by the same plan",
        ),
        pytest.param(
            [Preempt("team/pinned", "now", "", WHY)], "the job is pinned", id="a pinned job"
        ),
        pytest.param(
            [Admit("team/q1", 2, ("n0", "n0"), WHY)],
            r"2 is not among its widths \(1, 3\)",
            id="a width it may not have",
        ),
        pytest.param(
            [Admit("team/q1", 3, ("n0",), WHY)],
            "1 node named for 3 workers",
            id="too few nodes named",
        ),
        pytest.param(
            [Admit("team/q1", 3, ("n0", "n0", "n0"), WHY)],
            "node n0 has 0 free GPUs, 1 asked",
            id="more than is free",
        ),
        pytest.param(
            [Admit("team/q1", 3, ("n0", "n1", "n1"), WHY)],
            "node n1 has 0 free",
            id="GPUs held for another job",
        ),
        pytest.param(
            [Admit("team/q1", 1, ("n9",), WHY)],
            "node 'n9' is not in the cluster",
            id="no such node",
        ),
        pytest.param(
            [Admit("team/q1", 1, ("n0",), WHY), Admit("team/q1", 1, ("n0",), WHY)],
            "the plan already has Admit of it",
            id="admitted twice",
        ),
        pytest.param(
            [Resize("team/q1", 3, ("n0",) * 3, "now", WHY)],
            "it does not run; admit it",
            id="resizing what waits",
        ),
        pytest.param(
            [Resize("team/runs", 1, ("n0",), "now", WHY)],
            "it has 1 worker already",
            id="resizing to the same width",
        ),
        pytest.param(
            [Resize("team/runs", 2, ("n1", "n0"), "now", WHY)],
            r"workers 0..0 stay where they are, on n0, not on n1",
            id="moving a worker",
        ),
        pytest.param(
            [Resize("team/runs", 2, ("n0", "n0"), "epoch", WHY)],
            "growth starts pods now",
            id="growing at an epoch",
        ),
        pytest.param(
            [Preempt("team/q1", "epoch", "", WHY)], "it does not run", id="stopping what waits"
        ),
        pytest.param(
            [Preempt("team/fixed", "epoch", "team/q1", WHY)],
            "it is not preemptible",
            id="stopping what may not be stopped, for somebody",
        ),
        pytest.param(
            [Preempt("team/runs", "epoch", "team/none", WHY)],
            "beneficiary 'team/none' is no unfinished job",
            id="for nobody known",
        ),
        pytest.param(
            [Refuse("team/runs", REFUSAL, WHY)],
            "it has 1 worker; stop it first",
            id="refusing what runs",
        ),
        pytest.param(
            [Loan(("n0",), WHY)], "n0 is in pool training, not inference", id="lending our own node"
        ),
        pytest.param([Reclaim(("n8",), WHY)], "node 'n8' is not in the cluster", id="no such loan"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(decisions: list[Decision], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        check_plan(Plan(tuple(decisions)), the_cluster())


def test_a_width_of_zero_is_never_a_plan() -> None:
    state = cluster(jobs=[job("a", workers=(0, 1))])
    with pytest.raises(PlanError, match="a Job of 0 workers completes; suspend it"):
        check_plan(Plan((Admit("team/a", 0, (), WHY),)), state)


@pytest.mark.parametrize(
    "decision",
    [
        pytest.param(Admit("team/q2", 1, ("n1",), WHY), id="on GPUs held for it"),
        pytest.param(Admit("team/q1", 1, ("n0",), WHY), id="on a free GPU"),
        pytest.param(Resize("team/runs", 2, ("n0", "n0"), "now", WHY), id="growth on its node"),
        pytest.param(Preempt("team/runs", "epoch", "team/q1", WHY), id="a stop at the epoch's end"),
        pytest.param(Preempt("team/fixed", "now", "", WHY), id="a stop for its own sake"),
        pytest.param(Wait("team/q1", WHY), id="waiting"),
    ],
)
def test_what_fits_passes(decision: Decision) -> None:
    check_plan(Plan((decision,)), the_cluster())


def test_the_rest_of_a_hold_is_free_once_its_job_starts() -> None:
    state = cluster(gpus=4, jobs=[job("a"), job("b")], holds=[Hold("team/a", "n0", 4, 60.0)])
    plan = Plan((Admit("team/b", 1, ("n0",), WHY), Admit("team/a", 1, ("n0",), WHY)))
    after = apply_plan(plan, state)
    assert (after.free_gpus, after.holds) == (2, ())


def test_an_admitted_job_runs_on_its_nodes() -> None:
    state = cluster(gpus=4, jobs=[job("a", workers=(2,))], now=30.0)
    after = apply_plan(Plan((Admit("team/a", 2, ("n0", "n0"), WHY),)), state)
    row = after.by_id["team/a"]
    assert (row.workers, row.nodes, row.resumed_at, row.formed) == (2, ("n0", "n0"), 30.0, 0)
    assert after.free_gpus == 2
    assert state.by_id["team/a"].workers == 0


def test_shrinking_now_frees_nothing_at_once() -> None:
    state = cluster(gpus=4, jobs=[job("a", workers=(1, 3), running=3)], now=10.0)
    after = apply_plan(Plan((Resize("team/a", 1, ("n0",), "now", WHY),)), state)
    row = after.by_id["team/a"]
    assert (row.workers, row.terminating_workers, row.attained_gpu_s) == (1, 2, 30.0)
    assert after.free_gpus == 1


def test_a_stop_at_the_epoch_is_only_asked_for() -> None:
    state = cluster(gpus=4, jobs=[job("a", running=1), job("b")], now=10.0)
    row = apply_plan(Plan((Preempt("team/a", "epoch", "team/b", WHY),)), state).by_id["team/a"]
    assert (row.workers, row.stop_requested_at, row.stop_for) == (1, 10.0, "team/b")


def test_a_stop_now_holds_what_it_frees_for_its_beneficiary() -> None:
    state = cluster(gpus=4, jobs=[job("a", running=2, workers=(2,)), job("b")], now=10.0)
    after = apply_plan(Plan((Preempt("team/a", "now", "team/b", WHY),)), state)
    row = after.by_id["team/a"]
    assert (row.workers, row.terminating_workers, row.preemptions) == (0, 2, 1)
    assert [(hold.job, hold.node, hold.gpus) for hold in after.holds] == [("team/b", "n0", 2)]


def test_rows_that_nothing_happened_to_are_the_same_objects() -> None:
    state = cluster(gpus=[4, 4], jobs=[job("a"), job("b")])
    after = apply_plan(Plan((Admit("team/a", 1, ("n0",), WHY),)), state)
    assert after.by_id["team/b"] is state.by_id["team/b"]
    assert after.nodes[1] is state.nodes[1]


def test_verdicts_are_written() -> None:
    given = promise(100.0)
    forecast = Forecast(1.0, 2.0, 0.0, WHY)
    state = cluster(jobs=[job("a", due_at=100.0), job("b"), job("c", due_at=9.0)])
    plan = Plan(
        (
            Promised("team/a", given, WHY),
            Forecasted("team/b", forecast, WHY),
            Refuse("team/c", REFUSAL, WHY),
        )
    )
    after = apply_plan(plan, state)
    assert [row.verdict for row in after.jobs] == [given, forecast, REFUSAL]
    assert not any(row.asked for row in after.jobs)


@pytest.mark.parametrize(
    ("now", "stands"),
    [
        pytest.param(50.0, True, id="its deadline is ahead"),
        pytest.param(101.0, False, id="its deadline has passed"),
    ],
)
def test_a_refusal_does_not_take_away_a_promise(now: float, stands: bool) -> None:
    row = promised("a", 100.0, asked=True)
    after = verdict_after(row, Refuse(row.id, REFUSAL, WHY), now)
    assert isinstance(after, Promise) == stands


def test_a_loaned_node_may_be_used_and_is_given_back_empty() -> None:
    nodes = (node("n0", 2), node("inf", 4, pool="inference"))
    state = ClusterState(0.0, nodes, (job("a"),))
    lent = apply_plan(Plan((Loan(("inf",), WHY),)), state)
    runs = apply_plan(Plan((Admit("team/a", 1, ("inf",), WHY),)), lent)
    with pytest.raises(PlanError, match="job team/a still runs on inf"):
        check_plan(Plan((Reclaim(("inf",), WHY),)), runs)
    stopped = apply_plan(Plan((Preempt("team/a", "now", "", WHY), Reclaim(("inf",), WHY))), runs)
    assert stopped.nodes[1].pool == "inference"
