"""What a script in a pod without laxity posts, as the history of its Job."""

import json
import random
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity.worker.progress.progress_posts import Post, read_post
from laxity_profiler.estimate import NO_PROGRESS, Workload
from laxity_profiler.history.history import History
from laxity_profiler.history.report_fold import FoldResult, ReportState
from laxity_profiler.history.script_posts import ScriptPod, lines_of_end, lines_of_post
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.notifications.chart_points import epoch_points

POD = ScriptPod("sft-0-abc", began_at=1_000.0, resumes=True)
NEXT = replace(POD, name="sft-0-xyz", began_at=3_000.0)
NEVER = 1e9


def posted(at: float, percent: float | None = None, **metrics: object) -> Post:
    rows = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    status = {"progressPercentage": percent, "metrics": rows}
    return read_post(json.dumps({"trainerStatus": status}).encode(), at)


def take(state: ReportState, *posts: Post, pod: ScriptPod = POD) -> list[FoldResult]:
    """Each post by itself, as by a replica that has seen none of the others."""
    folds = []
    for post in posts:
        state.script = json.loads(json.dumps(state.script))
        lines = lines_of_post(state, post, pod)
        folds.append(state.fold(lines, epochs=1, received_at=NEVER))
    return folds


def end(state: ReportState, at: float, pod: ScriptPod = POD) -> FoldResult:
    return state.fold(lines_of_end(state, pod, at), epochs=1, received_at=NEVER)


def test_each_per_cent_is_an_epoch_that_ends_between_two_posts() -> None:
    state = ReportState()

    folds = take(state, posted(1_010.0, 0), posted(1_030.0, 2), posted(1_060.0, 4, loss=0.5))

    epochs = [epoch for fold in folds for epoch in fold.epochs]
    assert [(epoch.epoch, epoch.epoch_s, epoch.at) for epoch in epochs] == [
        (1, 10.0, 1_020.0), (2, 10.0, 1_030.0), (3, 15.0, 1_045.0), (4, 15.0, 1_060.0),
    ]  # fmt: skip
    assert [epoch.warmup for epoch in epochs] == [True, False, False, False]
    assert state.report().refine(Workload("m", 1, user_epoch_s=600.0, whole=True)) == Workload(
        "m", 100, user_epoch_s=6.0
    )
    assert not any(fold.rejected for fold in folds)


def test_next_start_of_one_that_resumes_goes_on_from_where_it_was() -> None:
    state = ReportState()
    take(state, posted(1_010.0, 0), posted(1_400.0, 40))

    (fold,) = take(state, posted(3_050.0, 42), pod=NEXT)

    assert [epoch.epoch for epoch in fold.epochs] == [41, 42]
    assert sum(epoch.epoch_s for epoch in fold.epochs) == pytest.approx(50.0)
    assert state.report().holds_state is True


def test_one_that_began_at_zero_again_does_not_hold_what_it_has_trained() -> None:
    state = ReportState()
    take(state, posted(1_010.0, 0), posted(1_400.0, 40))

    take(state, posted(3_010.0, 0), posted(3_020.0, 1), posted(3_030.0, 2), pod=NEXT)

    report = state.report()
    assert (report.holds_state, report.progress.epochs_done) == (False, 2)
    assert report.furthest_epoch == 40


def test_next_start_of_one_that_does_not_resume_begins_at_zero_at_once() -> None:
    state, pod = ReportState(), replace(POD, resumes=False)
    take(state, posted(1_010.0, 0), posted(1_400.0, 40), pod=pod)

    take(state, posted(3_100.0, 10), pod=replace(NEXT, resumes=False))

    report = state.report()
    assert (report.holds_state, report.progress.epochs_done) == (False, 10)


def test_100_per_cent_of_one_that_is_told_to_stop_is_no_progress_but_its_steps_are() -> None:
    state, told = ReportState(), replace(POD, is_told_to_stop=True)
    take(state, posted(1_010.0, 0), posted(1_400.0, 40))

    take(state, posted(1_410.0, 100), pod=told)
    assert state.report().progress.epochs_done == 40

    take(state, posted(1_420.0, 100, current_step=45, total_steps=100), pod=told)
    assert state.report().progress.epochs_done == 45


def test_job_that_completes_at_60_per_cent_has_finished_early() -> None:
    state = ReportState()
    take(state, posted(1_010.0, 0), posted(1_610.0, 60, loss=0.25))

    end(state, 1_640.0)

    report = state.report()
    assert (report.finished, report.finished_epochs) == (True, 60)
    assert report.result == {"progress_percent": 60.0, "loss": 0.25}
    assert state.finishing_s == pytest.approx(30.0)
    assert lines_of_end(state, POD, 1_700.0) == [], "it ends once"


def test_script_that_posts_nothing_is_one_epoch_of_its_whole_run() -> None:
    state = ReportState()

    fold = end(state, 1_090.0)

    assert [(epoch.epoch, epoch.epoch_s) for epoch in fold.epochs] == [(1, 90.0)]
    assert state.report().finished_epochs == 1
    assert state.result == {"progress_percent": None}


def test_job_whose_worker_reports_for_itself_is_left_alone() -> None:
    state = ReportState()
    state.fold([{"seq": 1, "kind": "started", "at": 1_000.0}], epochs=5, received_at=NEVER)

    assert lines_of_end(state, POD, 1_090.0) == []


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 100.0) | st.none(),
            st.none() | st.tuples(st.integers(0, 9), st.integers(1, 9)),
            st.integers(0, 2),
            st.booleans(),
            st.floats(0.0, 50.0),
        ),
        max_size=12,
    )
)
def test_whatever_is_posted_counts_each_of_100_epochs_at_most_once_in_a_start(
    told: list[tuple[float | None, tuple[int, int] | None, int, bool, float]],
) -> None:
    state, at = ReportState(), 1_000.0
    by_start: dict[str, list[int]] = {}
    for percent, steps, start, stops, pause_s in told:
        at += pause_s
        pod = ScriptPod(f"pod-{start}", at, resumes=start != 1, is_told_to_stop=stops)
        metrics = {} if steps is None else {"current_step": steps[0], "total_steps": steps[1]}
        before = state.script.get("name")
        (fold,) = take(state, posted(at, percent, **metrics), pod=pod)
        assert not fold.rejected
        seen = by_start.setdefault(pod.name, [])
        if before != pod.start:
            seen.clear()
        seen += [epoch.epoch for epoch in fold.epochs]
        assert seen == sorted(set(seen))
        assert not seen or seen[-1] <= 100
    assert 0 <= state.report().progress.epochs_done <= 100


def test_whole_run_is_predicted_in_the_units_of_the_run_before(history: History) -> None:
    noise, at = random.Random(5), 1_000.0
    whole = Workload("m", 1, whole=True)
    for percent in range(101):
        made = partial(lines_of_post, post=posted(at, percent), pod=POD)
        history.ingest("first", "default/first", whole, made, received_at=at)
        at += noise.uniform(1.9, 2.1)
    predictor = Learner(history).predictor()

    for estimate in (
        predictor.remaining(whole, NO_PROGRESS, 1),
        predictor.epoch_time(whole, 1),
    ):
        assert estimate.source == "history"
        assert estimate.p50_s == pytest.approx(200.0, rel=0.1)


def test_epoch_that_is_trained_once_more_has_its_point_in_the_chart_already() -> None:
    state = ReportState()
    first = lines_of_post(state, posted(1_010.0, 2, loss=0.5), POD)
    state.fold(first, epochs=1, received_at=NEVER)

    second = lines_of_post(state, posted(3_010.0, 3), replace(NEXT, resumes=False))

    assert [point.epoch for point in epoch_points(first)] == [1, 2]
    assert epoch_points(first)[0].values["loss"] == 0.5
    assert [point.epoch for point in epoch_points(second)] == [3]
