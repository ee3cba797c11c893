"""When the steps of a group find room, and what is kept for them."""

from dataclasses import replace

import pytest

from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.groups.layout import GroupLayout, GroupPlanner, StepState, find_start
from laxity_scheduler.groups.structure import GroupStep
from laxity_scheduler.model.cluster import ClusterState, NodeSet, Reserved
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.promising.reserve import Profile, slot_edges
from laxity_scheduler.store.codec import encode_record, load_state
from laxity_scheduler.store.differences import apply_difference, snapshot_difference
from tests.support.builders import Curve, cluster, job, promised

LONG_S = 36_000.0


def lay_out(
    state: ClusterState, *steps: StepState, kept: dict[str, Reserved] | None = None
) -> GroupLayout:
    forecasts = Forecasts(state, Curve(epoch_s=600.0))
    planner = GroupPlanner(forecasts, Reservations(state, forecasts), LONG_S)
    return planner.lay_out("default/g", steps, kept or {}, fast=False)


def coming(name: str, *after: str, jobs: int = 1) -> StepState:
    return StepState(GroupStep(name, jobs, after), coming=jobs, row=job(f"{name}-coming"))


def test_first_start_is_where_enough_gpus_are_free_for_long_enough() -> None:
    profile = Profile.of(slot_edges(3600.0), 4.0)
    profile.add(600.0, 1200.0, -3.0)
    assert find_start(profile, 0.0, 1, 3000.0) == 0.0
    assert find_start(profile, 0.0, 2, 300.0) == 0.0
    assert find_start(profile, 0.0, 2, 900.0) == pytest.approx(1200.0, abs=30.0)


def test_gpus_are_kept_for_each_step_behind_the_one_before() -> None:
    layout = lay_out(cluster(gpus=4), coming("a"), coming("b", "a", jobs=3))
    first, second = layout.reserved["a"], layout.reserved["b"]
    assert (first.gpus, second.gpus) == (1, 3)
    assert second.from_at == pytest.approx(first.from_at + 6000.0, abs=120.0)


def test_time_of_a_step_lies_behind_earlier_promises() -> None:
    earlier = promised("e", 9000.0)
    layout = lay_out(cluster(gpus=1, jobs=[earlier]), coming("a"))
    assert layout.reserved["a"].from_at == pytest.approx(6000.0, abs=200.0)


def test_time_of_a_step_stays_when_a_newcomer_takes_what_is_free_before() -> None:
    kept = {"b": Reserved("default/g/b", 6000.0, 12_000.0, 1)}
    newcomer = promised("n", 30_000.0)
    state = cluster(gpus=1, jobs=[newcomer])
    layout = lay_out(state, coming("b"), kept=kept)
    assert layout.reserved["b"].from_at <= 6000.0 + 200.0


def test_worker_that_no_node_holds_is_named() -> None:
    large = StepState(GroupStep("w"), coming=1, row=job("w-coming", gpus_per_worker=8))
    assert lay_out(cluster(gpus=[8]), large).blocked == ""
    assert lay_out(cluster(gpus=[4, 4]), large).blocked == "w"


def test_jobs_take_turns_where_their_nodes_hold_few() -> None:
    state = cluster(gpus=[1, 8], sets={"left": NodeSet(frozenset({"n0"}))})
    confined = StepState(GroupStep("a", 3), coming=3, row=job("a-coming", eligible="left"))
    assert lay_out(state, confined).course.parts[0].at_once == 1
    assert lay_out(state, coming("a", jobs=3)).course.parts[0].at_once == 3


def test_very_many_jobs_take_turns() -> None:
    layout = lay_out(cluster(gpus=4), coming("a", jobs=10_000))
    assert (layout.blocked, layout.course.parts[0].at_once) == ("", 4)


def test_claims_are_planned_around_what_is_kept() -> None:
    kept = Reserved("default/g/a", 0.0, 6000.0, 1)
    state = cluster(gpus=1, jobs=[promised("n", 30_000.0)], reserved=(kept,))
    shares = Reservations(state, Forecasts(state, Curve(epoch_s=600.0))).shares
    assert shares["team/n"].starts_s == pytest.approx(6000.0, abs=200.0)


def test_step_that_never_fits_is_named() -> None:
    assert lay_out(cluster(gpus=1), coming("a")).blocked == ""
    wide = StepState(GroupStep("w"), coming=1, row=job("w-coming", workers=(4,)))
    assert lay_out(cluster(gpus=1), wide).blocked == "w"


def test_fast_step_takes_no_width_that_makes_its_jobs_take_turns() -> None:
    state = cluster(gpus=4)
    forecasts = Forecasts(state, Curve(epoch_s=600.0, speedup={2: 1.5, 4: 2.0}))
    planner = GroupPlanner(forecasts, Reservations(state, forecasts), LONG_S)
    elastic = StepState(GroupStep("a", 4), coming=4, row=job("a-coming", workers=(1, 2, 4)))
    layout = planner.lay_out("default/g", [elastic], {}, fast=True)
    assert layout.widths == {"a": 1}
    assert layout.course.parts[0].at_once == 4


def test_next_steps_gpus_are_kept_from_the_end_of_a_share() -> None:
    state = cluster(gpus=4)
    forecasts = Forecasts(state, Curve(epoch_s=600.0))
    planner = GroupPlanner(forecasts, Reservations(state, forecasts), LONG_S)
    layout = planner.lay_out("default/g", [coming("a"), coming("b", "a")], {}, fast=False)
    planner.spread(layout, {"a": state.now + 9000.0, "b": state.now + 18_000.0})
    assert layout.reserved["b"].from_at - state.now == pytest.approx(9000.0, abs=60.0)
    assert layout.course.quantile_s(0.9) == pytest.approx(12_000.0, abs=120.0)


def test_gpus_of_a_step_are_kept_from_the_p90_end_of_the_one_before() -> None:
    state = cluster(gpus=1, jobs=[job("a", running=1)])
    running = StepState(GroupStep("a"), live=state.jobs)
    forecasts = Forecasts(state, Curve(epoch_s=600.0, spread=0.5))
    planner = GroupPlanner(forecasts, Reservations(state, forecasts), LONG_S)
    layout = planner.lay_out("default/g", [running, coming("b", "a")], {}, fast=False)
    assert layout.reserved["b"].from_at >= forecasts.trajectory_s(state.jobs[0]) * 0.97


def test_jobs_that_take_turns_put_off_the_step_behind_them() -> None:
    state = cluster(gpus=1, jobs=[promised(name, 40_000.0) for name in ("x", "y")])
    waiting = StepState(GroupStep("a", 2), live=state.jobs)
    layout = lay_out(state, waiting, coming("b", "a"))
    assert layout.reserved["b"].from_at == pytest.approx(12_000.0, abs=300.0)


@pytest.mark.parametrize("has_verdict", [True, False], ids=["planned", "just come"])
def test_step_whose_job_waits_takes_the_time_of_the_width_that_is_for_it(
    *, has_verdict: bool
) -> None:
    """A wide step was taken for one on a single worker: it looked late, and had the next one's time."""
    waiting = promised("a", 2000.0, workers=(1, 4))
    waiting = waiting if has_verdict else replace(waiting, verdict=None)
    state = cluster(gpus=4, jobs=[waiting])
    kept = {} if has_verdict else {"a": Reserved("default/g/a", state.now, state.now + 1500.0, 4)}
    layout = lay_out(state, StepState(GroupStep("a"), live=state.jobs), kept=kept)
    assert layout.course.quantile_s(0.5) == pytest.approx(1500.0, abs=60.0)


def test_kept_gpus_come_back_from_the_journal() -> None:
    kept = Reserved("default/g/a", 0.0, 6000.0, 8, "left", "team", 8)
    without, with_kept = cluster(gpus=1), cluster(gpus=1, reserved=(kept,))
    assert load_state(encode_record(with_kept)) == with_kept
    for old, new in ((without, with_kept), (with_kept, without)):
        assert apply_difference(old, snapshot_difference(old, new)) == new
