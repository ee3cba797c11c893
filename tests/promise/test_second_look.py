"""The second look of qos: who is refused for want of room, decided once more as if it were promised.

Epochs take 60 s on one worker and speed up linearly; all GPUs are on one node.
"""

from dataclasses import replace

import pytest

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Promised, Refuse
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies import qos
from laxity_scheduler.qos.second_look import CROWD
from tests.support.builders import Curve, cluster, job, promised

EPOCHS = Curve(models={"four": 240.0, "six": 360.0, "twelve": 720.0})
ONE_LOOK = replace(qos.DEFAULT, second_looks=1)
NO_LOOK = replace(qos.DEFAULT, second_looks=0)
NO_ROOM = "capacity_promised_to_others"


def passed_over(*, last_epochs: int = 12, last_model: str = "mlp") -> ClusterState:
    """2 GPUs, 2,760 GPU-seconds up to the deadline of `last` (720 s); the promised jobs need 1,440.

    Plans of claims, one after the other, find no room for it. `alone` does not fit: 720 s by 840 s.
    """
    jobs = [
        promised("first", 1_320.0, epochs=2, workers=(1, 2, 4)),
        promised("second", 840.0, epochs=9, running=1),
        promised("third", 600.0, epochs=13, workers=(1, 2, 4)),
        job("alone", epochs=12, due_at=840.0),
        job("last", epochs=last_epochs, model=last_model, due_at=1_380.0),
    ]
    return cluster(gpus=2, jobs=jobs)


def too_much() -> ClusterState:
    """2 GPUs, 1,800 GPU-seconds up to the last deadline; the promised jobs need 1,740, `new` 180."""
    jobs = [
        promised("first", 780.0, epochs=9),
        promised("second", 900.0, epochs=10, workers=(2,), running=2),
        promised("third", 780.0, epochs=10, workers=(1, 2, 4)),
        job("new", epochs=3, due_at=300.0),
    ]
    return cluster(gpus=2, jobs=jobs)


def late_at_epoch_ends() -> ClusterState:
    """2 GPUs; `new` needs both for 150 s by 330 s, when one is in the middle of an epoch of `second`."""
    jobs = [
        promised("first", 240.0, epochs=3, workers=(1, 2, 4), running=2),
        promised("second", 900.0, epochs=11),
        job("new", epochs=5, workers=(2,), due_at=330.0),
    ]
    return cluster(gpus=2, jobs=jobs)


def refused(plan: Plan) -> dict[str, str]:
    return {d.job: d.reason.code for d in plan.decisions if isinstance(d, Refuse)}


def promises(plan: Plan) -> dict[str, Promised]:
    return {d.job: d for d in plan.decisions if isinstance(d, Promised)}


def test_a_job_refused_for_want_of_room_is_kept_where_nobody_is_endangered() -> None:
    state = passed_over()
    assert refused(NO_LOOK(state, EPOCHS)) == {"team/alone": NO_ROOM, "team/last": NO_ROOM}
    plan = qos.decide(state, EPOCHS)
    check_plan(plan, state)
    assert refused(plan) == {"team/alone": NO_ROOM}
    assert all(d.promise.p90_at <= d.promise.deadline_at for d in promises(plan).values())


def test_the_promise_of_a_second_look_says_how_it_is_kept() -> None:
    plan = qos.decide(passed_over(), EPOCHS)
    given = promises(plan)["team/last"].promise
    (waits_until_at, none), (ends_at, workers) = given.runs
    assert (none, workers) == (0, 1)
    assert 540.0 < waits_until_at < 600.0
    assert ends_at == given.p90_at == pytest.approx(waits_until_at + 720.0)
    assert given.reason.code == "fits"
    assert given.rests_on[0] == "truth"
    assert set(given.rests_on[1:]) == {"team/first", "team/second", "team/third"}


def test_an_old_promise_in_danger_objects() -> None:
    state = too_much()
    assert refused(NO_LOOK(state, EPOCHS)) == {"team/new": NO_ROOM}
    assert qos.decide(state, EPOCHS) == NO_LOOK(state, EPOCHS)


def test_who_is_late_by_whole_epochs_stays_refused() -> None:
    state = late_at_epoch_ends()
    assert refused(NO_LOOK(state, EPOCHS)) == {"team/new": NO_ROOM}
    assert qos.decide(state, EPOCHS) == NO_LOOK(state, EPOCHS)


def test_a_refusal_that_stands_keeps_its_offers() -> None:
    first, second = (policy(passed_over(), EPOCHS) for policy in (NO_LOOK, qos.decide))
    refusals = [
        next(d for d in plan.decisions if isinstance(d, Refuse) and d.job == "team/alone")
        for plan in (first, second)
    ]
    assert [offer.kind for offer in refusals[1].refusal.offers] == ["deadline", "borrow"]
    assert [offer.kind for offer in refusals[0].refusal.offers] == ["deadline", "borrow"]


def test_a_decision_takes_no_more_looks_than_it_may() -> None:
    """The first look is spent on the job that cannot be kept."""
    both = {"team/alone": NO_ROOM, "team/last": NO_ROOM}
    assert refused(ONE_LOOK(passed_over(), EPOCHS)) == both


def test_a_decision_about_a_crowd_looks_once_since_each_look_costs_as_much_again() -> None:
    state = passed_over()
    waiting = [job(f"waits-{number}", epochs=1) for number in range(CROWD - len(state.jobs))]
    assert refused(qos.decide(state, EPOCHS)) == {"team/alone": NO_ROOM}
    crowd = replace(state, jobs=(*state.jobs, *waiting))
    assert refused(qos.decide(crowd, EPOCHS)) == refused(ONE_LOOK(state, EPOCHS))


@pytest.mark.parametrize(
    ("epochs", "model", "is_kept"),
    [
        pytest.param(1, "twelve", False, id="one epoch of 720 s"),
        pytest.param(2, "six", False, id="two of 360 s"),
        pytest.param(3, "four", True, id="three of 240 s"),
    ],
)
def test_jobs_of_one_or_two_epochs_are_not_looked_at_again(
    epochs: int, model: str, is_kept: bool
) -> None:
    state = passed_over(last_epochs=epochs, last_model=model)
    assert "team/last" in refused(NO_LOOK(state, EPOCHS))
    assert ("team/last" in promises(qos.decide(state, EPOCHS))) is is_kept


def test_a_namespace_with_a_budget_gets_no_second_look() -> None:
    state = replace(passed_over(), budgets={"team": 1e6})
    assert qos.decide(state, EPOCHS) == NO_LOOK(state, EPOCHS)


def test_a_second_look_decides_the_same_again() -> None:
    state = passed_over()
    first = qos.decide(state, EPOCHS)
    assert qos.decide(state, EPOCHS) == first  # with what the snapshot remembers
    assert qos.decide(passed_over(), EPOCHS) == first
