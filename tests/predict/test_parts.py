"""A run is start | epochs | finishing: each part is expected, and told while it lasts."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from laxity.api.job_view import JobView, job_view
from laxity.api.status_text import fact_rows, part_text, silence_text
from laxity.cli.render.job_panel import job_panel
from laxity_profiler.estimate import Progress
from laxity_profiler.history.history import History
from laxity_profiler.history.observations import ObservedStop
from laxity_profiler.history.report_fold import ReportState
from laxity_profiler.learning.learner import Learner
from laxity_profiler.overhead.costs import fit_costs
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.expected_times import predict_ends
from laxity_scheduler.service.transition_times import TransitionWatcher
from laxity_scheduler.service.views.live_view import end_fields
from tests.support.builders import Curve, cluster, job
from tests.support.runs import LATER_AT, epoch_line, line, trained, workload

PREDICTOR = Curve(start_s=15.0, finishing_s=26.0)
STARTING = replace(job("a", running=1), formed=0, epoch_started_at=None, resumed_at=0.0)
FINISHING = job("a", running=1, done=10)


def seen_at(row: Job, now: float) -> JobView:
    """The job as its readers see it then."""
    end = predict_ends(cluster(jobs=[row], now=now), PREDICTOR, [row])[row.id]
    return job_view({"id": row.id, "state": "running", **end_fields(end)})


@pytest.mark.parametrize(
    ("row", "now", "text"),
    [
        (STARTING, 12.0, "starting for 12s, usually 15s"),
        (FINISHING, 15.0, "finishing for 15s, usually 26s"),
        (FINISHING, 0.5, "finishing, usually 26s"),
        (job("a", running=1, done=9), 15.0, ""),
    ],
)
def test_a_part_is_told_with_its_age_and_its_usual_time(row: Job, now: float, text: str) -> None:
    assert part_text(seen_at(row, now), now) == text


def test_what_keeps_a_start_is_told_in_place_of_its_usual_time() -> None:
    seen = seen_at(replace(STARTING, pending="worker 0 waits on a: ErrImagePull"), 600.0)

    assert part_text(seen, 600.0) == "starting for 10m00s: worker 0 waits on a: ErrImagePull"
    assert silence_text(seen_at(STARTING, 600.0), 600.0) != ""
    assert silence_text(seen, 600.0) == "", "nothing could be reported"


@pytest.mark.parametrize("row", [STARTING, FINISHING], ids=["start", "finishing"])
def test_no_finish_is_past_or_now_while_a_part_lasts(row: Job) -> None:
    for now in (0.0, 14.9, 15.0, 25.9, 26.0, 40.0, 400.0):
        seen = seen_at(row, now)
        assert seen.p50_at is not None
        assert seen.p90_at is not None
        assert now < seen.p50_at <= seen.p90_at


def test_a_start_after_a_failure_counts_from_its_own_begin() -> None:
    """Three hours after the start by a decision, its workers have begun anew."""
    again = replace(STARTING, restarted_at=10_800.0)
    plain = replace(STARTING, resumed_at=10_800.0)
    now = 10_812.0

    assert part_text(seen_at(again, now), now) == "starting for 12s, usually 15s"
    assert seen_at(again, now).p90_at == seen_at(plain, now).p90_at


def test_a_job_that_never_reports_is_not_one_that_starts_for_hours() -> None:
    silent = replace(STARTING, reports=False)
    ends = [seen_at(silent, now) for now in (12.0, 10_800.0)]

    assert [part_text(end, 10_800.0) for end in ends] == ["", ""]
    assert [(end.p90_at or 0.0) - now for end, now in zip(ends, (12.0, 10_800.0), strict=True)] == [
        pytest.approx(15.0 + 600.0 + 26.0)
    ] * 2


def test_a_start_after_a_failure_is_no_measure_of_what_resuming_costs() -> None:
    first = replace(STARTING, resumed_at=10_000.0)
    formed = replace(first, formed=1, epoch_started_at=10_815.0)
    watcher, again = TransitionWatcher(), replace(first, restarted_at=10_800.0)

    def measured(before: Job) -> int:
        watcher.take_transitions(cluster(jobs=[before], now=10_812.0), JobFaults())
        return len(watcher.take_transitions(cluster(jobs=[formed], now=10_816.0), JobFaults()))

    assert measured(again) == 0
    assert measured(first) == 1


@pytest.mark.parametrize(
    ("row", "now", "told"),
    [
        (
            STARTING,
            59.0,
            False,
        ),  # three times what a start usually takes are not over, nor a minute
        (STARTING, 61.0, True),
        (FINISHING, 600.0, False),
    ],
)
def test_a_start_without_progress_is_told_once_it_is_no_usual_start(
    row: Job, now: float, told: bool
) -> None:
    seen = seen_at(row, now)

    assert ("none was reported yet" in silence_text(seen, now)) == told
    assert not silence_text(replace(seen, state="failed"), now)


@pytest.mark.parametrize(("progress", "told"), [(None, True), (100.0, False)])
def test_show_says_of_a_finished_script_that_it_reported_no_progress(
    progress: float | None, told: bool
) -> None:
    view = job_view({"id": "a", "state": "finished", "result": {"progress_percent": progress}})
    shown = StringIO()
    Console(file=shown, width=120).print(job_panel(view, now=0.0))

    assert ("later runs are predicted by its run time" in shown.getvalue()) == told
    assert (dict(fact_rows(view))["progress"] != "") == told


def test_a_part_that_has_ended_is_told_no_more() -> None:
    over = replace(seen_at(FINISHING, 15.0), state="finished")

    assert not part_text(over, 16.0)


def test_a_long_first_epoch_stays_in_the_forecast_while_it_runs(history: History) -> None:
    for n in range(4):
        trained(history, f"job-{n}", "compiles", epoch_s=[8.0, *[1.0] * 11])
    what = workload("compiles", epochs=12)
    predictor = Learner(history).predictor()

    in_first = predictor.remaining(what, Progress(warms_up=True), 1)
    in_second = predictor.remaining(what, Progress(1), 1)

    assert in_first.p50_s == pytest.approx(19.0, abs=0.5)
    assert in_first.p90_s > 19.0
    assert in_second.p50_s == pytest.approx(11.0, abs=0.5)


def test_an_epoch_warms_up_from_the_forming_of_workers_to_its_end() -> None:
    state = ReportState()
    warms_up = []
    for each in (
        line(1, "formed", width=1, epoch=0),
        epoch_line(2, 1, warmup=True),
        line(3, "parked", epoch=1),
        line(4, "formed", width=1, epoch=1),
        line(5, "started"),
    ):
        state.fold([each], epochs=3, received_at=LATER_AT)
        warms_up.append(state.report().progress.warms_up)

    assert warms_up == [True, False, False, True, False]


def test_three_starts_of_its_own_count_more_than_those_of_other_models() -> None:
    """Two models with imports of 60 s and 200 s are known; this one starts in 2 s."""
    slow = [ObservedStop("a", "resume", 1, 60.0, None), ObservedStop("b", "resume", 1, 200.0, None)]
    own = [ObservedStop("toy", "resume", 1, 2.0, None)] * 3

    start = fit_costs([*slow, *slow, *own]).estimate("toy", ("resume",), 1)

    assert start.p50_s == pytest.approx(2.0)
    assert start.p90_s < 3.0
