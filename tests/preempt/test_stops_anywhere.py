"""A job that can save after any step costs seconds to stop, not the rest of its epoch of an hour."""

from dataclasses import replace
from typing import Any

import pytest

from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_profiler.history.report_fold import ReportState
from laxity_scheduler.engine import run_cycle
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.inflight import follow_ups, with_follow_ups
from laxity_scheduler.model.decision import Preempt, Promised, Refuse
from laxity_scheduler.model.job import Job
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import costs
from tests.support.builders import Curve, cluster, job
from tests.support.simulated import job as trace_job
from tests.support.simulated import trace, world

NOW, HOUR_S = 10_000.0, 3600.0
HOURS = Curve(epoch_s=HOUR_S, start_s=5.0, stop_s=5.0)


def hourly(**more: Any) -> Job:
    """A quarter into the third of its ten epochs of an hour."""
    return job("long", epochs=10, done=2, running=1, epoch_started_at=NOW - HOUR_S / 4, **more)


@pytest.mark.parametrize(
    ("anywhere", "free_s"), [pytest.param(True, 5.0), pytest.param(False, 0.75 * HOUR_S + 5.0)]
)
def test_its_gpus_are_free_after_saving(anywhere: bool, free_s: float) -> None:
    row = hourly(stops_anywhere=anywhere)
    state = cluster(gpus=1, now=NOW, jobs=[row])

    forecasts = Forecasts(state, HOURS)

    assert forecasts.time_to_free_s(row) == pytest.approx(free_s)
    freed_s = forecasts.frame.times_s("p90")[2]
    assert freed_s[0] == pytest.approx(free_s)


def test_what_it_has_trained_of_an_epoch_is_not_trained_again() -> None:
    row = hourly(stops_anywhere=True)
    waiting = job("waits", epochs=10, done=2, saved_part=0.25)
    forecasts = Forecasts(cluster(gpus=2, now=NOW, jobs=[row, waiting]), HOURS)

    assert forecasts.restart_s(row) == pytest.approx(5.0 + 5.0 + 7.75 * HOUR_S)
    assert forecasts.trajectory_s(waiting) == pytest.approx(5.0 + 7.75 * HOUR_S)


@pytest.mark.parametrize(
    ("anywhere", "verdict"), [pytest.param(True, Promised), pytest.param(False, Refuse)]
)
def test_an_urgent_job_is_promised_the_gpu_of_a_job_that_stops_in_seconds(
    anywhere: bool, verdict: type
) -> None:
    urgent = job("hot", epochs=1, due_at=NOW + 1.5 * HOUR_S, submitted_at=NOW, queued_at=NOW)
    state = cluster(gpus=1, now=NOW, jobs=[hourly(stops_anywhere=anywhere), urgent])

    plan = with_follow_ups(find("qos").policy())(state, HOURS)

    (told,) = (d for d in plan.decisions if isinstance(d, Promised | Refuse))
    assert (told.job, type(told)) == ("team/hot", verdict)
    stops = [(d.job, d.at) for d in plan.decisions if isinstance(d, Preempt)]
    assert stops == ([("team/long", "epoch")] if anywhere else [])


@pytest.mark.parametrize("anywhere", [True, False])
def test_simulated_job_stops_inside_its_epoch_and_goes_on_there(anywhere: bool) -> None:
    long = trace_job("long", at=0.0, runs_s=24_000.0)
    hot = trace_job("hot", at=1_900.0, runs_s=600.0, due_at=3_500.0)
    sim, truths = world(trace(long, hot), cost="live", nodes=1, gpus_per_node=1)
    predictor, policy = NoisyPredictor(truths, costs("live", cluster_gpus=1)), find("qos").policy()
    stopped_at = []
    while not sim.done:
        sim.advance()
        for name, live in sim.live.items():
            live.row = replace(live.row, stops_anywhere=anywhere)
            if name.endswith("long") and live.parked:
                stopped_at.append(live.position)
        run_cycle(sim, with_follow_ups(policy), predictor)

    assert stopped_at
    assert (stopped_at[0] % 1.0 > 0.0) == anywhere


@pytest.mark.parametrize(
    ("part", "words"),
    [
        pytest.param(0.25, "saved inside epoch 3: it stops for hot", id="inside an epoch"),
        pytest.param(
            0.0, "it stops for hot after epoch 2, and goes on from there", id="between two"
        ),
    ],
)
def test_a_stop_says_where_it_is(part: float, words: str) -> None:
    waits = hourly(
        stops_anywhere=True, saved_part=part, parked_epoch=2, stop_requested_at=NOW, stop_for="hot"
    )
    state = cluster(gpus=1, now=NOW, jobs=[replace(waits, epoch_started_at=None)])

    (stop,) = follow_ups(state)

    assert stop.reason.text == words


def test_reports_say_where_a_training_stopped_inside_its_epoch() -> None:
    lines = [
        {"kind": "formed", "width": 1, "epoch": 2, "stops": "anywhere", "at": 100.0},
        {"kind": "parked", "epoch": 2, "share": 0.25, "at": 150.0},
        {"kind": "started", "at": 200.0},
        {"kind": "formed", "width": 1, "epoch": 2, "share": 0.25, "spent_s": 50.0, "at": 210.0},
    ]
    state, parts = ReportState(), []

    for seq, line in enumerate(lines, start=1):
        state.fold([{**line, "seq": seq}], epochs=10, received_at=300.0)
        parts.append((state.saved_part, state.stops_anywhere))

    assert parts == [(0.0, True), (0.25, True), (0.25, True), (0.0, False)]
    assert state.report().epoch_started_at == 160.0
