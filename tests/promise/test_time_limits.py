"""Kubernetes ends a start after a time, and the job cannot be stopped at an epoch's end before."""

from typing import Any, TypeVar

import pytest

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Decision, Preempt, Refuse, verdict_after
from laxity_scheduler.model.job import Forecast, Job, Promise, Refusal
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.promising.promise import judge
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised
from tests.support.rows import new_row
from tests.support.services import manifest

D = TypeVar("D", bound=Decision)
CAREFUL = Curve(spread=0.2, start_s=30.0)  # 30 s + 12 minutes at P90 on one worker


def limited(limit_s: float, *, workers: tuple[int, ...] = (1,), **fields: Any) -> Job:
    return job(due_at=9000.0, workers=workers, active_deadline_s=limit_s, **fields)


def decided(state: ClusterState, kind: type[D]) -> list[D]:
    decisions = decide(state, MINUTE_EPOCHS).decisions
    return [decision for decision in decisions if isinstance(decision, kind)]


def test_a_job_longer_than_its_clock_is_refused_in_one_sentence() -> None:
    verdict = judge(cluster(gpus=4), limited(749.0), CAREFUL)
    assert isinstance(verdict, Refusal)
    assert verdict.reason.text == (
        "Kubernetes ends it 12m29s after its start (activeDeadlineSeconds), and it takes 12m30s "
        "from its start (P90) on 1 worker: raise activeDeadlineSeconds, or let it do less"
    )
    assert verdict.offers == ()
    assert isinstance(judge(cluster(gpus=4), limited(750.0), CAREFUL), Promise)


def test_only_widths_that_end_before_the_clock_are_planned() -> None:
    state = cluster(gpus=8, jobs=[limited(200.0, workers=(1, 2, 4))])
    verdict = judge(state, state.jobs[0], MINUTE_EPOCHS)
    assert isinstance(verdict, Promise)
    assert verdict.runs == ((150.0, 4),)
    (start,) = decided(state, Admit)
    assert start.workers == 4


def test_widths_that_would_end_before_the_clock_are_offered() -> None:
    refused = judge(cluster(gpus=8), limited(100.0, workers=(1, 2)), MINUTE_EPOCHS)
    assert isinstance(refused, Refusal)
    (offer,) = refused.offers
    assert (offer.kind, offer.widths) == ("widths", (1, 2, 8)), "four workers take 150 s"
    taken = limited(100.0, workers=offer.widths)
    assert isinstance(judge(cluster(gpus=8), taken, MINUTE_EPOCHS), Promise)


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param({"active_deadline_s": 200.0}, id="a job"),
        pytest.param({"wall_limit_s": 16.0}, id="a link"),
    ],
)
def test_a_limit_that_only_widths_beyond_the_cluster_keep_is_refused(
    limit: dict[str, Any],
) -> None:
    """Four workers would be fast enough, and two fit."""
    wide = job(due_at=9000.0, workers=(1, 2, 4), **limit)
    verdict = judge(cluster(gpus=2), wide, MINUTE_EPOCHS)
    assert isinstance(verdict, Refusal)
    assert (verdict.reason.fact("workers"), verdict.offers) == (2, ())


def test_a_job_that_runs_is_told_when_it_would_end_and_is_not_stopped() -> None:
    running = limited(60.0, running=1, asked=True)
    state = cluster(gpus=1, jobs=[running], now=30.0)
    assert isinstance(judge(state, running, MINUTE_EPOCHS), Forecast)
    assert not decided(state, Refuse)
    assert not decided(state, Preempt)


def test_a_promise_stands_though_the_clock_is_lowered_while_the_job_runs() -> None:
    lowered = promised("a", 9000.0, running=1, asked=True, active_deadline_s=60.0)
    state = cluster(gpus=1, jobs=[lowered], now=30.0)
    (refusal,) = decided(state, Refuse)
    assert refusal.reason.code == "active_deadline_too_short"
    assert verdict_after(lowered, refusal, 30.0) == lowered.verdict
    assert not decided(state, Preempt)


def test_a_manifest_is_judged_by_its_own_clock() -> None:
    """As a dry run judges it, and as the service does once it is there."""
    state = cluster(gpus=4)
    made = manifest(deadline="2h", widths="1")
    made["spec"]["activeDeadlineSeconds"] = 90
    training = judge(state, new_row(made, state), MINUTE_EPOCHS)
    assert isinstance(training, Promise), "ten links of a minute each"
    for name in ("laxity.dev/epochs", "laxity.dev/entry"):
        del made["metadata"]["annotations"][name]
    hour = Curve(epoch_s=3600.0)
    refused = judge(state, new_row(made, state), hour)
    assert isinstance(refused, Refusal)
    assert refused.reason.code == "active_deadline_too_short"
