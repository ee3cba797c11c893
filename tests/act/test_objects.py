"""Jobs, Pods and Nodes as JSON become rows, whatever people write into them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.jobs import BadJob, job_row
from laxity_k8s.objects.status_annotation import (
    JobStatusRecord,
    read_status,
    terms,
    verdict,
    verdict_text,
)
from laxity_profiler.estimate import Progress
from laxity_scheduler.live import Report
from laxity_scheduler.model.cluster import HOLD_S
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.model.verdict import Forecast, Offer, Promise, Refusal, Verdict
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, job, node, pod

WHY = reason("fits", p90_at=60.0, slack_s=5.0, workers=2)


def row(made: Json, pods: tuple[Json, ...] = (), report: Report | None = None, **more: Any) -> Job:
    found = job_row(made, pods, report or Report(), **more)
    assert isinstance(found, Job), found
    return found


def test_what_the_user_declared_is_in_the_row() -> None:
    made = job(
        deadline="20m",
        widths="1,2,4",
        model="mlp",
        samples="100",
        batch_size="10",
        dataset_bytes="5",
        epoch_estimate="30s",
        gpus=2,
    )
    found = row(made)
    assert (found.id, found.service_class, found.widths) == ("default/job", "hard", (1, 2, 4))
    assert (found.submitted_at, found.deadline_at) == (CREATED_AT, CREATED_AT + 1200)
    work = found.workload
    assert (work.model, work.epochs, work.samples, work.batch_size) == ("mlp", 10, 100, 10)
    assert (work.dataset_bytes, work.user_epoch_s, found.gpus_per_worker) == (5, 30.0, 2)


def test_a_duration_counts_from_the_first_submission_if_that_is_known() -> None:
    found = row(job(deadline="1h", submitted_at="2026-11-21T07:00:00.250Z"))
    assert found.deadline_at == CREATED_AT + 0.25


@pytest.mark.parametrize(
    ("claimed", "place_s", "counts_from_s"),
    [
        pytest.param("2026-11-21T08:00:00.250Z", 0.25, 0.25, id="milliseconds of its creation"),
        pytest.param("2000-01-01T00:00:00Z", 0.0, None, id="the year 2000"),
        pytest.param("2026-11-21T07:00:00Z", 0.0, -3600.0, id="a scheduled time"),
        pytest.param("2026-11-21T08:30:00Z", 0.0, 0.0, id="after its creation"),
    ],
)
def test_a_claimed_submission_tightens_a_deadline_and_moves_no_place_in_the_queue(
    claimed: str, place_s: float, counts_from_s: float | None
) -> None:
    found = row(job(deadline="2h", submitted_at=claimed))
    assert (found.submitted_at, found.queued_at) == (CREATED_AT + place_s, CREATED_AT + place_s)
    if counts_from_s is None:
        assert found.deadline_at < CREATED_AT
    else:
        assert found.deadline_at == CREATED_AT + counts_from_s + 7200.0


def test_a_submission_in_the_future_is_refused_in_words() -> None:
    found = job_row(job(deadline="2h", submitted_at="2090-01-01T00:00:00Z"))
    assert isinstance(found, BadJob)
    assert found.problems == ("submitted_at: 2090-01-01T00:00:00Z lies in the future",)


def test_an_instant_is_the_deadline_itself() -> None:
    assert row(job(deadline="2026-11-21T09:00Z")).deadline_at == CREATED_AT + 3600
    assert row(job()).deadline_at == FOREVER


@pytest.mark.parametrize(
    ("largest", "want"),
    [
        pytest.param(1, (1,), id="one GPU"),
        pytest.param(5, (1, 2, 4), id="powers of two that fit"),
        pytest.param(500, (1, 2, 4, 8), id="eight at most"),
        pytest.param(0, (1,), id="an empty cluster"),
    ],
)
def test_without_widths_laxity_chooses_from_what_the_cluster_holds(
    largest: int, want: tuple[int, ...]
) -> None:
    assert row(job(widths="auto"), largest=largest).widths == want


@pytest.mark.parametrize(
    ("largest", "running", "want"),
    [
        pytest.param(2, 0, (1, 2), id="as wide as the cluster"),
        pytest.param(0, 0, (1,), id="an empty cluster"),
        pytest.param(2, 4, (1, 2, 3, 4), id="what runs stays among them"),
        pytest.param(5000, 0, tuple(range(1, 4097)), id="a cluster that holds all"),
    ],
)
def test_declared_widths_are_cut_to_what_the_cluster_holds(
    largest: int, running: int, want: tuple[int, ...]
) -> None:
    made = job(widths="1..4096")
    made["spec"] |= {"suspend": not running, "parallelism": running or 1}
    assert row(made, largest=largest).widths == want


def test_of_widths_that_are_all_too_wide_the_least_is_judged() -> None:
    assert row(job(widths="8,16"), largest=2).widths == (8,)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        pytest.param({"deadline": "soon"}, "deadline", id="no duration"),
        pytest.param({"deadline": "-5m"}, "deadline", id="a negative deadline"),
        pytest.param({"widths": "0,1"}, "w", id="a width of zero"),
        pytest.param({"epochs": "many"}, "epochs", id="epochs in words"),
        pytest.param({"dedline": "5m"}, "dedline", id="a misspelt annotation"),
        pytest.param({"class": "urgent"}, "class", id="an unknown class"),
    ],
)
def test_a_wrong_annotation_is_named_and_raises_nothing(said: dict[str, Any], field: str) -> None:
    found = job_row(job(**said))
    assert isinstance(found, BadJob)
    assert any(problem.startswith(field) for problem in found.problems)


@given(st.dictionaries(st.sampled_from(sorted(names.OUTPUTS)), st.text(max_size=40)))
def test_garbled_output_annotations_are_read_as_not_written(said: dict[str, str]) -> None:
    made = job()
    made["metadata"]["annotations"] |= said
    assert isinstance(job_row(made), Job)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=6,
    )
)
def test_any_json_in_the_status_annotation_is_survived(said: object) -> None:
    made = job()
    made["metadata"]["annotations"][names.STATUS] = json.dumps(said)
    assert isinstance(job_row(made), Job)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(Promise(9.5, 1.5, 2.5, ((3.5, 2), (FOREVER, 4)), WHY, ("a",)), id="promise"),
        pytest.param(
            Refusal(WHY, (Offer("deadline", 5.0, (1,), 4.0, 1.0),), FOREVER), id="refusal"
        ),
        pytest.param(Forecast(1.0, FOREVER, 3.0, WHY), id="forecast"),
    ],
)
def test_a_verdict_is_read_back_as_it_was_written(told: Verdict) -> None:
    text = verdict_text(told)
    made = job()
    made["metadata"]["annotations"][names.VERDICT] = text
    assert verdict(made) == told
    assert json.loads(text)["kind"] == type(told).__name__.lower()


def test_what_is_kept_is_read_back_as_it_was_written() -> None:
    state = JobStatusRecord(
        1.0, 2.0, 3.0, 4, 5.0, 6.0, "default/b", ("n", "n"), 7.0, "5m", "abc", 2
    )
    made = job()
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    assert read_status(made) == state


def test_a_judged_job_asks_again_when_its_terms_change() -> None:
    made = job(deadline="20m")
    judged = {
        names.STATUS: JobStatusRecord(terms=terms(made)).to_text(),
        names.VERDICT: verdict_text(Refusal(WHY)),
    }
    made["metadata"]["annotations"] |= judged
    assert not row(made).asked
    made["metadata"]["annotations"][names.DEADLINE] = "30m"
    assert row(made).asked


def test_a_running_job_counts_its_gpu_seconds_up_to_its_last_report() -> None:
    state = JobStatusRecord(
        resumed_at=CREATED_AT + 10, since=CREATED_AT + 10, attained_gpu_s=5.0, wanted=2
    )
    made = job(width=2, suspend=False, gpus=2)
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    report = Report(Progress(3), since=CREATED_AT + 20, formed=2)
    found = row(made, (), report, now=CREATED_AT + 25)
    assert (found.since, found.attained_gpu_s) == (CREATED_AT + 20, 5.0 + 2 * 2 * 10)
    assert (found.progress.epochs_done, found.formed) == (3, 2)


def test_nodes_are_where_pods_are_and_else_where_they_were_sent() -> None:
    made = job(width=2, suspend=False, nodes='["a", "b"]')
    assert row(made, (pod(1, node="c"),)).nodes == ("a", "c")


def test_nodes_are_unknown_when_somebody_else_started_workers() -> None:
    assert row(job(width=2, suspend=False, nodes='["a"]')).nodes == ()


@pytest.mark.parametrize(
    ("made", "pods", "want"),
    [
        pytest.param(job(), (pod(0), pod(1)), 2, id="suspended with two pods"),
        pytest.param(job(suspend=False), (pod(0), pod(1)), 1, id="shrunk below a pod"),
        pytest.param(job(suspend=False), (pod(0, leaving=True),), 1, id="one on its way out"),
        pytest.param(job(suspend=False), (pod(0), pod(1, phase="Failed")), 0, id="one is over"),
        pytest.param(job(status={"terminating": 2}), (), 2, id="pods not seen yet"),
        pytest.param(job(status={"active": 2}), (), 2, id="suspended a moment ago"),
    ],
)
def test_workers_that_still_hold_gpus_are_terminating(
    made: Json, pods: tuple[Json, ...], want: int
) -> None:
    assert row(made, pods).terminating_workers == want


def test_gpus_are_reserved_for_workers_without_a_pod_and_counted_once() -> None:
    made = job(width=3, suspend=False, nodes='["a", "b", "b"]')
    pods = (pod(0, node="a"), pod(1, phase="Pending"))
    found = row(made, pods)
    assert jobs.gpus_reserved(made, found.nodes, found.gpus_per_worker, pods) == {"b": 2}
    assert jobs.pods_busy(pods) == {"a": 1}


def test_pods_of_a_job_that_is_not_indexed_are_counted_once_too() -> None:
    made = job(width=2, suspend=False, nodes='["a", "a"]', spec={"completionMode": "NonIndexed"})
    pods = (pod(None, node="a"),)
    assert jobs.gpus_reserved(made, row(made, pods).nodes, 1, pods) == {"a": 1}


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(job(suspend=False, status=EVER_SUSPENDED), True, id="let go by hand"),
        pytest.param(job(suspend=False), False, id="new, and never suspended"),
        pytest.param(job(), False, id="new and suspended"),
        pytest.param(job(suspend=False, pin="by me"), True, id="the annotation says so"),
    ],
)
def test_jobs_that_people_started_are_pinned(made: Json, want: bool) -> None:
    assert row(made).pinned is want


def test_a_width_other_than_wanted_pins() -> None:
    made = job(width=3, suspend=False)
    made["metadata"]["annotations"][names.STATUS] = JobStatusRecord(wanted=2).to_text()
    assert row(made).pinned
    made["metadata"]["annotations"][names.STATUS] = JobStatusRecord(wanted=3).to_text()
    assert not row(made).pinned


def test_a_stop_and_a_smaller_width_asked_for_are_read_while_it_runs() -> None:
    asked: dict[str, Any] = {"stop": '{"at": 5.0, "for": "default/b"}', "resize_to": "1"}
    running = row(job(width=2, suspend=False, **asked))
    assert (running.stop_requested_at, running.stop_for, running.resize_to) == (5.0, "default/b", 1)
    suspended = row(job(width=2, **asked))
    assert (suspended.stop_requested_at, suspended.resize_to) == (None, 0)


def test_a_parked_epoch_of_an_earlier_run_is_not_believed() -> None:
    state = JobStatusRecord(resumed_at=CREATED_AT + 100, wanted=1)
    made = job(suspend=False, stop='{"at": 1.0}')
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    stale = Report(since=CREATED_AT + 50, parked_epoch=4)
    assert row(made, (), stale, now=CREATED_AT + 101).parked_epoch is None
    fresh = replace(stale, since=CREATED_AT + 101)
    assert row(made, (), fresh, now=CREATED_AT + 101).parked_epoch == 4


def test_a_job_whose_pods_do_not_run_in_time_says_how_many_do() -> None:
    state = JobStatusRecord(resumed_at=CREATED_AT, width_changed_at=CREATED_AT, wanted=3)
    made = job(width=3, suspend=False, nodes='["a", "a", "a"]')
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    pods = (pod(0, node="a"), pod(1, phase="Pending"), pod(2, node="a"))
    early, late = CREATED_AT + 59.0, CREATED_AT + 61.0
    assert row(made, pods, due_at=CREATED_AT + 60.0, now=early).fitting_workers is None
    assert row(made, pods, due_at=CREATED_AT + 60.0, now=late).fitting_workers == 1
    all_run = tuple(pod(index, node="a") for index in range(3))
    assert row(made, all_run, due_at=CREATED_AT + 60.0, now=late).fitting_workers is None


def test_gpus_are_held_until_whom_they_were_freed_for_has_started() -> None:
    victim, other = row(job("victim")), row(job("other"))
    state = JobStatusRecord(freed_for=other.id, freed_nodes=("a", "a", "b"), freed_at=100.0)
    held = jobs.holds(victim, state, other, 110.0)
    assert [(hold.job, hold.node, hold.gpus) for hold in held] == [
        (other.id, "a", 2),
        (other.id, "b", 1),
    ]
    assert jobs.holds(victim, state, replace(other, resumed_at=105.0), 110.0) == []
    assert jobs.holds(victim, state, other, 100.0 + HOLD_S) == []


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(node(gpus=4), 3, id="ready"),
        pytest.param(node(gpus=4, unschedulable=True), 0, id="cordoned"),
        pytest.param(node(gpus=4, ready=False), None, id="not ready"),
        pytest.param(node(gpus=0), None, id="without GPUs"),
    ],
)
def test_a_node_has_the_gpus_that_may_be_used(made: Json, want: int | None) -> None:
    found = jobs.node_rows(made, {"n": 1})
    assert [row.free_gpus for row in found] == ([] if want is None else [want])


LATER, LATEST = "2026-11-21T08:01:00Z", "2026-11-21T08:02:00Z"


def failed(index: int = 0, code: int = 1, said: str = "", **more: Any) -> Json:
    return pod(index, node="a", phase="Failed", code=code, said=said, **more)


@pytest.mark.parametrize(
    ("own", "died"),
    [
        pytest.param([pod(0), pod(1)], "", id="all run"),
        pytest.param(
            [failed(said="Traceback ...\nImportError: no module named x\n\n"), pod(1)],
            "worker 0 failed with exit code 1: ImportError: no module named x",
            id="its last line",
        ),
        pytest.param(
            [failed(code=139)], "worker 0 failed with exit code 139 (SIGSEGV)", id="signal"
        ),
        pytest.param(
            [failed(code=137)],
            "worker 0 failed with exit code 137 "
            "(SIGKILL: killed from outside, often by the memory limit)",
            id="killed",
        ),
        pytest.param(
            [failed(code=137, said="x.py:3: FutureWarning\n  warnings.warn(")],
            "worker 0 failed with exit code 137 "
            "(SIGKILL: killed from outside, often by the memory limit); "
            "last output: warnings.warn(",
            id="killed after a warning",
        ),
        pytest.param(
            [failed(code=137, why="OOMKilled")],
            "worker 0 failed with exit code 137 (out of memory)",
            id="killed for its memory",
        ),
        pytest.param(
            [failed(0, said="lost 1", ended=LATEST), failed(1, said="no GPU", ended=LATER)],
            "worker 1 failed with exit code 1: no GPU",
            id="the first of two",
        ),
        pytest.param([failed(said="x"), pod(0, created=LATER)], "", id="started again"),
        pytest.param([failed(code=143), failed(1, code=75)], "", id="told to stop, start again"),
        pytest.param([failed(disrupted=True)], "", id="its node went"),
        pytest.param([failed(2), pod(0), pod(1)], "", id="beyond the width"),
    ],
)
def test_a_worker_that_fails_before_it_can_report_is_told_by_its_pod(
    own: list[Json], died: str
) -> None:
    made = job(width=2, suspend=False)
    assert row(made, tuple(own), now=CREATED_AT).died == died
    assert row(job(width=2), tuple(own), now=CREATED_AT).died == ""


def waiting(index: int = 0, *, conditions: Any = (), waits: Json | None = None) -> Json:
    made = pod(index, node="a" if waits else "", phase="Pending")
    made["status"]["conditions"] = list(conditions)
    made["status"]["containerStatuses"] = [{"name": "train", "state": {"waiting": waits or {}}}]
    return made


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/5 nodes are available: 5 Insufficient memory.",
}


@pytest.mark.parametrize(
    ("own", "why"),
    [
        pytest.param([pod(0), pod(1)], "", id="all run"),
        pytest.param([waiting(0), pod(1)], "", id="nothing is said"),
        pytest.param(
            [pod(0), waiting(1, conditions=[UNSCHEDULABLE])],
            "worker 1 has no node: 0/5 nodes are available: 5 Insufficient memory.",
            id="no node",
        ),
        pytest.param(
            [waiting(0, waits={"reason": "ImagePullBackOff", "message": "Back-off pulling x"})],
            "worker 0 waits on a: ImagePullBackOff: Back-off pulling x",
            id="no image",
        ),
        pytest.param(
            [waiting(1, waits={"reason": "B"}), waiting(0, waits={"reason": "A"})],
            "worker 0 waits on a: A",
            id="the first of two",
        ),
        pytest.param([pod(0), pod(1), waiting(2, conditions=[UNSCHEDULABLE])], "", id="beyond"),
    ],
)
def test_why_a_worker_has_not_started_in_time_is_told_by_its_pod(own: list[Json], why: str) -> None:
    made = job(width=2, suspend=False)
    due: Any = {"due_at": CREATED_AT + 60.0}
    assert row(made, tuple(own), now=CREATED_AT + 60.0, **due).pending == why
    assert row(made, tuple(own), now=CREATED_AT + 59.0, **due).pending == ""
