"""A Job whose training holds no state says so, and what a stop has lost counts for nothing."""

import json
from dataclasses import replace
from typing import Any

import pytest

from laxity import names
from laxity.instants import format_rfc3339
from laxity.job.spec import MOST_RESTARTS
from laxity.json_tree import annotations_of, merge_patch
from laxity_k8s.act.failing import MOST_CUT_LINKS, find_failure
from laxity_k8s.act.patches import job_patch
from laxity_k8s.act.state_notice import find_state_notice
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.attempts import go_on, origin_of
from laxity_k8s.objects.status_annotation import JobStatusRecord, read_status
from laxity_profiler.estimate import Progress
from laxity_scheduler.live import Report
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import CREATED_AT, job, pod
from tests.support.rows import row

STARTED_AT = CREATED_AT + 100.0
LOST = Report(
    Progress(5, (2.0,), (1,)), since=STARTED_AT + 50.0, formed=1, holds_state=False,
    furthest_epoch=5, advanced_at=STARTED_AT + 50.0, epoch_ended_at=STARTED_AT + 50.0,
)  # fmt: skip


def noted(made: Json, **status: Any) -> Json:
    kept = JobStatusRecord(resumed_at=STARTED_AT, wanted=int(not made["spec"]["suspend"]), **status)
    made["metadata"]["annotations"][names.STATUS] = kept.to_text()
    return made


def running(**status: Any) -> Json:
    return noted(job(suspend=False, nodes='["a"]'), **status)


def created(after_s: float, **more: Any) -> Json:
    return pod(0, node="a", created=format_rfc3339(STARTED_AT + after_s), **more)


# --- the row ---


@pytest.mark.parametrize(
    ("made", "pods", "done"),
    [
        pytest.param(running(), [created(1.0)], 5, id="it runs"),
        pytest.param(running(), [created(1.0, phase="Succeeded")], 5, id="it is done"),
        pytest.param(noted(job()), [], 0, id="it was stopped"),
        pytest.param(running(), [], 0, id="it starts again"),
        pytest.param(running(), [created(1.0, phase="Failed", code=137)], 0, id="it was killed"),
        pytest.param(
            running(), [created(1.0, phase="Failed", code=137), created(60.0)], 0,
            id="another pod has not reported yet",
        ),
    ],
)  # fmt: skip
def test_only_what_the_present_worker_has_trained_counts(
    made: Json, pods: list[Json], done: int
) -> None:
    lost = row(made, tuple(pods), LOST, now=STARTED_AT + 61.0)
    kept = row(made, tuple(pods), replace(LOST, holds_state=True), now=STARTED_AT + 61.0)

    assert (lost.holds_state, lost.progress.epochs_done) == (False, done)
    assert lost.progress.epoch_s == (2.0,), "how long its epochs take is known all the same"
    assert (kept.holds_state, kept.progress.epochs_done) == (True, 5)


@pytest.mark.parametrize(
    ("resumes", "holds_state", "preemptible"),
    [
        pytest.param("true", False, False, id="a script began at 0 again"),
        pytest.param("true", True, True, id="it goes on"),
        pytest.param("false", False, True, id="it never claimed to"),
    ],
)
def test_job_that_does_not_resume_as_it_declares_is_not_stopped_again(
    resumes: str, *, holds_state: bool, preemptible: bool
) -> None:
    made = running()
    made["metadata"]["annotations"][names.RESUMES] = resumes

    seen = row(made, (created(1.0),), replace(LOST, holds_state=holds_state))

    assert seen.preemptible is preemptible


@pytest.mark.parametrize(
    ("report", "holds_state"),
    [
        pytest.param(Report(), False, id="nothing reported: as the Job says"),
        pytest.param(Report(holds_state=True), True, id="its workers know better"),
    ],
)
def test_what_stands_on_the_job_outlasts_the_service(report: Report, *, holds_state: bool) -> None:
    assert row(running(holds_state=False), (), report).holds_state is holds_state


# --- what the Job says ---


def test_the_job_says_it_once() -> None:
    made = running(preemptions=2)

    notice = find_state_notice(made, lambda _: LOST)

    assert notice is not None
    assert notice.code == "holds_no_state"
    assert "a stop loses all its epochs" in notice.words
    after = merge_patch(made, notice.patch.body)
    assert json.loads(annotations_of(after)[names.STATUS])["holds_state"] is False
    assert read_status(after).preemptions == 2
    assert find_state_notice(after, lambda _: LOST) is None


def test_a_job_that_holds_state_again_says_so() -> None:
    notice = find_state_notice(running(holds_state=False), lambda _: Report(holds_state=True))

    assert notice is not None
    assert notice.code == "holds_state"
    body = notice.patch.body["metadata"]["annotations"][names.STATUS]
    assert "holds_state" not in json.loads(body)


@pytest.mark.parametrize(
    ("made", "report"),
    [
        pytest.param(running(), Report(), id="no epoch has ended"),
        pytest.param(running(), Report(holds_state=True), id="it holds state"),
        pytest.param(
            job(status={"conditions": [{"type": "Complete", "status": "True"}]}), LOST, id="ended"
        ),
    ],
)
def test_others_say_nothing(made: Json, report: Report) -> None:
    assert find_state_notice(made, lambda _: report) is None


@pytest.mark.parametrize("value", ["no", 0, None, []])
def test_nonsense_on_the_job_counts_as_not_written(value: object) -> None:
    made = job()
    made["metadata"]["annotations"][names.STATUS] = json.dumps({"holds_state": value})

    assert read_status(made).holds_state is True


# --- attempts, failures and links ---


def test_the_next_attempt_begins_at_epoch_0() -> None:
    again, kept = job(), job()
    go_on(again, job(), LOST)
    go_on(kept, job(), replace(LOST, holds_state=True))

    assert origin_of(again).epochs == 0
    assert origin_of(kept).epochs == 5


def killed(number: int) -> Json:
    ended = format_rfc3339(STARTED_AT + 60.0 * number)
    return {**pod(0, node="a", phase="Failed", code=137, ended=ended)}


def training(**status: Any) -> Json:
    made = running(**status)
    made["metadata"]["annotations"][names.ENTRY] = "m:f"
    return made


def test_a_job_that_dies_five_times_before_a_new_epoch_has_failed() -> None:
    """Each start ends epochs, the same ones: as an epoch in between they would save it for ever."""
    deaths = [killed(number) for number in range(1, MOST_RESTARTS + 2)]
    report = replace(LOST, epoch_ended_at=STARTED_AT + 299.0)

    failure = find_failure(training(), deaths, lambda _: report, now=STARTED_AT + 400.0)

    assert failure is not None
    assert failure.code == "workers_fail_anew"
    assert "got no further than epoch 5, from epoch 1 each time" in failure.words
    further = replace(report, advanced_at=STARTED_AT + 299.0)
    assert find_failure(training(), deaths, lambda _: further, now=STARTED_AT + 400.0) is None


def test_links_that_begin_anew_each_time_are_counted_and_fail_the_job() -> None:
    made = training(holds_state=False, cut_links=1)
    made["metadata"]["annotations"][names.WALL_LIMIT] = "1h"
    cut = reason("link_lost", limit_s=3_600.0, epochs=5)
    present = row(made, (created(1.0),), LOST, now=STARTED_AT + 60.0)

    patch = job_patch(
        made, present, [Preempt(present.id, "now", present.id, cut)], now=STARTED_AT + 60.0
    )

    assert patch is not None
    after = merge_patch(made, patch.patch.body)
    assert read_status(after).cut_links == MOST_CUT_LINKS
    assert read_status(after).preemptions == 0
    failure = find_failure(after, [], lambda _: LOST, now=STARTED_AT + 60.0)
    assert failure is not None
    assert failure.code == "links_begin_anew"
    assert "2 links of 1h00m have ended and each began at epoch 1" in failure.words
