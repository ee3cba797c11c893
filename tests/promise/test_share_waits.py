"""What share plans foresee of a change: the wait for GPUs that others hold, and the whole start.

Epochs take 60 s on one worker and speed up linearly; who runs began an epoch at 0.
"""

from dataclasses import replace

import pytest

from laxity_scheduler.model.decision import Admit, Preempt, Promised
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies import edf_elastic, elasticflow
from laxity_scheduler.shares.rule import policy_of
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised

GREEDY = policy_of(replace(elasticflow.RULE, drops=False))
PROMISING = pytest.mark.parametrize("decide", [elasticflow.decide, GREEDY], ids=["drops", "keeps"])


def promises(plan: Plan) -> set[str]:
    return {d.job.removeprefix("team/") for d in plan.decisions if isinstance(d, Promised)}


@PROMISING
@pytest.mark.parametrize(
    ("due_at", "kept"),
    [
        # told to stop at 20, the other trains to 60 and saves to 70; then 600 s of the newcomer's
        pytest.param(669.0, False, id="a second less is too early"),
        pytest.param(675.0, True, id="the GPU comes in time"),
    ],
)
def test_who_needs_a_held_gpu_is_promised_no_more_than_its_holder_lets_be(
    decide: Policy, due_at: float, *, kept: bool
) -> None:
    holder = job("holder", epochs=100, running=1)
    new = job("new", due_at=due_at, submitted_at=20.0)
    plan = decide(cluster(gpus=1, jobs=[holder, new], now=20.0), Curve(stop_s=10.0))
    assert promises(plan) == ({"new"} if kept else set())
    stopped = {d.job for d in plan.decisions if isinstance(d, Preempt)}
    assert not kept or stopped == {"team/holder"}


@PROMISING
def test_a_free_gpu_is_not_waited_for(decide: Policy) -> None:
    """The same newcomer beside the same holder, and one GPU more."""
    holder = job("holder", epochs=100, running=1)
    new = job("new", due_at=625.0, submitted_at=20.0)
    plan = decide(cluster(gpus=2, jobs=[holder, new], now=20.0), MINUTE_EPOCHS)
    assert promises(plan) == {"new"}
    assert "team/new" in {d.job for d in plan.decisions if isinstance(d, Admit)}


def test_the_gpus_of_those_without_a_promise_are_the_first_to_be_waited_for() -> None:
    """The promised job's epoch ends at 30 s, the other's at 60: the newcomer gets that one's GPU."""
    kept = promised("kept", 700.0, epochs=10, running=1, epoch_started_at=-30.0)
    other = job("other", epochs=100, running=1)
    for due_at, promise in ((655.0, False), (665.0, True)):
        new = job("new", due_at=due_at, submitted_at=1.0)
        state = cluster(gpus=2, jobs=[kept, other, new], now=1.0)
        plan = elasticflow.decide(state, MINUTE_EPOCHS)
        assert ("new" in promises(plan)) is promise


@PROMISING
@pytest.mark.parametrize(
    ("due_at", "kept"),
    [
        # the first ends at 241, its epoch at 1; then 100 s of start and 600 s of work
        pytest.param(930.0, False, id="its start takes 100 s"),
        pytest.param(960.0, True, id="all of its start is in time"),
    ],
)
def test_a_start_that_is_longer_than_a_slot_of_the_plan_is_counted_whole(
    decide: Policy, due_at: float, *, kept: bool
) -> None:
    """Slots of 4 s: a start of 100 s takes 25 of them."""
    first = promised("first", 250.0, epochs=5, running=1, epoch_started_at=-59.0)
    new = job("new", due_at=due_at)
    plan = decide(cluster(gpus=1, jobs=[first, new]), Curve(start_s=100.0))
    assert promises(plan) == ({"new"} if kept else set())


def test_a_rule_that_keeps_nothing_for_later_does_not_count_when_gpus_come() -> None:
    """Elastic EDF sees the present alone: the second would be in time if it had the GPU now."""
    first = job("first", epochs=100, due_at=9_000.0, running=1)
    second = job("second", due_at=650.0, submitted_at=1.0)
    plan = edf_elastic.decide(cluster(gpus=1, jobs=[first, second], now=1.0), MINUTE_EPOCHS)
    assert [d.job for d in plan.decisions if isinstance(d, Preempt)] == ["team/first"]
