"""A job of which no epoch ends is told of, once, and so is that one ends again."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laxity.api.job_view import job_view
from laxity.api.status_text import stalled_text, state_words
from laxity_profiler.estimate import Estimate, Progress, Workload
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.notifications.message import events_between, message_digest
from laxity_scheduler.notifications.mlflow_sink import tags_of
from laxity_scheduler.service.views.live_view import ExpectedEnd, view_of
from laxity_scheduler.service.views.stalling import Stall, StallWatch, epoch_limit_s, stall_notice
from tests.support.builders import Curve, job
from tests.support.manifests import job as manifest
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, staged, wait_until

NOTHING_KNOWN = HistoryPredictor()


def training(*own_s: float, estimate_s: float | None = None, **changes: Any) -> Job:
    """A job on one worker; its latest epochs took so long, and the running one began at 1,000 s."""
    progress = Progress(len(own_s), own_s, (1,) * len(own_s))
    work = Workload("team::m", 10, user_epoch_s=estimate_s)
    row = job("a", running=1, progress=progress)
    return replace(row, workload=work, formed=1, epoch_started_at=1_000.0, **changes)


def stalled_at(row: Job, now: float) -> bool:
    return bool(StallWatch(JobFaults()).find([row], NOTHING_KNOWN, now, all_jobs=True))


@pytest.mark.parametrize(
    ("own_s", "limit_s"),
    [
        pytest.param((0.5, 0.5, 0.6), 90.0, id="short epochs: at least 90 s"),
        pytest.param((100.0, 120.0, 80.0), 720.0, id="long ones: six times the longest"),
        pytest.param((1.0, 1.0, 1.0, 40.0), 240.0, id="with one that validates"),
    ],
)
def test_an_epoch_stalls_at_six_times_its_longest(own_s: tuple[float, ...], limit_s: float) -> None:
    row = training(*own_s)
    start_s = NOTHING_KNOWN.resume_cost(row.workload, 1).p90_s

    limit, _ = epoch_limit_s(row, NOTHING_KNOWN)

    assert limit_s <= limit <= limit_s + start_s
    assert not stalled_at(row, 1_000.0 + limit - 1.0)
    assert stalled_at(row, 1_000.0 + limit + 1.0)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(training(), id="nothing is known of its epochs"),
        pytest.param(training(1.0, 1.0, 1.0, parked_epoch=3), id="it waits to be stopped"),
        pytest.param(training(*[1.0] * 10), id="all its epochs are done"),
    ],
)
def test_a_job_without_a_known_epoch_in_flight_never_stalls(row: Job) -> None:
    assert not stalled_at(row, 1e6)


def test_a_first_epoch_is_measured_by_what_is_known_before_it() -> None:
    assert not stalled_at(training(estimate_s=60.0), 1_300.0)
    assert stalled_at(training(estimate_s=60.0), 1_900.0)


def test_a_container_that_never_reports_stalls_at_six_times_its_whole_run() -> None:
    silent = training(estimate_s=60.0, reports=False, resumed_at=1_000.0)
    silent = replace(silent, epoch_started_at=None, formed=0)
    start_s = NOTHING_KNOWN.resume_cost(silent.workload, 1).p90_s
    run_s = NOTHING_KNOWN.remaining(silent.workload, silent.progress, 1).p90_s

    assert not stalled_at(silent, 1_000.0 + 6 * run_s - 1.0)
    assert stalled_at(silent, 1_000.0 + 6 * run_s + start_s + 1.0)
    assert not stalled_at(replace(silent, reports=True), 1e6), "its pods have not started"


class Failing(Curve):
    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        raise RuntimeError(f"no epoch time of {workload.model}")


def test_a_job_that_cannot_be_predicted_costs_no_other_its_stall() -> None:
    faults, other = JobFaults(), training(estimate_s=60.0)
    odd = replace(training(estimate_s=60.0), id="team/odd")
    watch = StallWatch(faults)

    assert watch.find([odd], Failing(), 1e4, all_jobs=True) == {}
    assert watch.find([other], NOTHING_KNOWN, 1e4, all_jobs=False).keys() == {other.id}


def test_the_watch_says_when_the_next_job_stalls() -> None:
    watch, row = StallWatch(JobFaults()), training(100.0, 100.0, 100.0)

    watch.find([row], NOTHING_KNOWN, 1_000.0, all_jobs=True)
    soon = watch.due_at
    watch.find([row], NOTHING_KNOWN, 1_100.0, all_jobs=True)
    later = watch.due_at
    watch.find([row], NOTHING_KNOWN, 2_000.0, all_jobs=True)

    limit_s, _ = epoch_limit_s(row, NOTHING_KNOWN)
    assert (soon, later, watch.due_at) == (1_090.0, 1_000.0 + limit_s, FOREVER)


def views() -> list[dict[str, Any]]:
    """Of a job that trains, has stalled, and trains again."""
    rows: list[dict[str, Any]] = []
    for stall in (None, Stall(1_000.0, 0.5), None):
        end = ExpectedEnd(3_000.0, 4_000.0, stall=stall)
        view = view_of(
            manifest(), training(), report=Report(), before=None, now=1_125.0, finish=end
        )
        rows.append(view | {"has_stalled": bool(rows)})
    return rows


def test_a_stall_and_its_end_are_told_once() -> None:
    before, stalled, after = views()

    notices = [
        stall_notice(one, other, 1_125.0)
        for one, other in ((None, before), (before, stalled), (stalled, stalled), (stalled, after))
    ]

    assert [notice and notice.text for notice in notices] == [
        None, "no epoch has ended for 2m05s, usually 0.5s", None,
        "an epoch has ended again, after 2m05s",
    ]  # fmt: skip
    assert "stalled" in events_between(before, stalled)
    assert message_digest(before) == message_digest(after) != message_digest(stalled)


def test_a_stall_stands_in_show_in_tables_and_on_the_run() -> None:
    before, stalled, after = views()

    seen = job_view(stalled)

    assert stalled_text(seen, 1_125.0) == "no epoch has ended for 2m05s, usually 0.5s"
    assert stalled_text(job_view(after), 1_125.0) == ""
    assert state_words(seen) == "running, stalled"
    tags = [
        tags_of(view).get("laxity.stalled")
        for view in (before | {"has_stalled": False}, stalled, after)
    ]
    assert tags == [None, "1970-01-01T00:16:40Z", "over"]


def test_a_service_tells_of_a_stall_and_of_its_end(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.run("a", deadline="1h", widths="1")
        stage.world.epoch_began("default/a", time.time() - 200.0)
        stage.until("default/a", lambda view: view["stalled_since"] is not None, "stalled")
        told = "laxity_jobs_stalled 1.0"
        wait_until(lambda: told in stage.http.get("/metrics").text, "a metric that says so")
        stage.world.epoch_began("default/a", time.time())
        stage.until("default/a", lambda view: view["stalled_since"] is None, "training again")
        wait_until(lambda: _stall_codes(stage) == ["stalled", "stall_over"], "both in explain")

    assert [(job_id, notice.code) for job_id, notice in stage.world.told] == [
        ("default/a", "stalled"), ("default/a", "stall_over"),
    ]  # fmt: skip


def _stall_codes(stage: Stage) -> list[str]:
    answer = stage.http.get("/v1/jobs/default/a/explain").json()
    codes = [row["reason_code"] for row in answer["chain"]]
    return [code for code in codes if "stall" in code]  # its promise may move as well
