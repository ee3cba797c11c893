"""What anybody may write where laxity reads: numbers, instants, quantities and types that are none."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from laxity import json_tree, names
from laxity.instants import format_rfc3339
from laxity.job.qos import QoS, QoSError
from laxity.job.signal import read_parked_epoch
from laxity.job.spec import TrainingSpec
from laxity.job.widths import MOST_WORKERS
from laxity_k8s.act.job_submission import prepare_manifest
from laxity_k8s.act.patches import format_instant, job_patch
from laxity_k8s.cluster_api import ApiError, Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.local_cluster import open_world, stop_workers
from laxity_k8s.local.scheduler import find_bindings
from laxity_k8s.objects import conditions, jobs, pods, status_annotation
from laxity_k8s.objects.attempts import attempt_number
from laxity_k8s.objects.pods import COMPLETION_INDEX
from laxity_k8s.objects.signals import Signals
from laxity_scheduler.live import Report
from laxity_scheduler.model.decision import Forecasted, Refuse
from laxity_scheduler.model.job import Forecast, Job, Offer, Promise, Refusal
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, job, node, pod
from tests.support.poison import NUMBERS, VALUES, VERDICTS, poisoned

NO_NUMBERS = ["²", "9" * 5000, "\u0663", "-1", "1e9", "NaN", "", " 4", "1_0"]
UID = "0198c0de-7a3b-7000-8000-0123456789ab"
WHY = reason("order", policy="test")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveCluster]:
    made = open_world(tmp_path, lambda _: Report(), slots=4)
    yield made
    made.close()
    stop_workers(tmp_path)


def row(made: Json, *own: Json) -> Job:
    found = jobs.job_row(made, own, now=CREATED_AT)
    assert isinstance(found, Job)
    return found


@pytest.mark.parametrize("text", NO_NUMBERS, ids=lambda text: repr(text)[:12])
def test_a_number_that_is_none_counts_as_not_written(text: str) -> None:
    numbered = pod(0, node="a")
    numbered["metadata"]["annotations"][COMPLETION_INDEX] = text
    made = job(suspend=False, status=EVER_SUSPENDED, resize_to=text, nodes='["a"]')
    made["metadata"]["resourceVersion"] = text
    limits = {"nvidia.com/gpu": text}
    numbered["spec"]["containers"].append({"name": "second", "resources": {"limits": limits}})
    assert (pods.index_of(numbered), pods.count_gpus(numbered)) == (None, 1)
    assert pods.parse_ranges(f"0-2,{text},7-{text},5") == (
        {0, 1, 2, 5, 7} if not text else {0, 1, 2, 5}
    )
    assert (row(made, numbered).resize_to, row(made, numbered).nodes) == (0, ("a",))
    assert (Signals().of(made).workers, Signals().of(made).generation) == (1, 0)
    assert attempt_number(job(attempt=text)) == 1
    line = f"laxity: saved and waiting at the end of epoch {text}, told by signal {text}"
    assert read_parked_epoch(line, generation=1) is None


@pytest.mark.parametrize(
    ("page", "flow_run"),
    [
        pytest.param(f"http://127.0.0.1:4200/runs/flow-run/{UID}", UID, id="a page of Prefect"),
        pytest.param(f"http://127.0.0.1:4200/api/flow_runs/{UID}/", UID, id="its API"),
        pytest.param("http://127.0.0.1:4200/runs/flow-run/../admin", "", id="no id"),
        pytest.param(UID, "", id="no address"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_worker_is_told_the_flow_run_that_follows_its_job(page: str, flow_run: str) -> None:
    signals = Signals()
    before = signals.of(job())
    attached = job(followed_by=page)
    attached["metadata"]["resourceVersion"] = "8"
    told = signals.of(attached)
    assert told.flow_run == flow_run
    assert (told.generation != before.generation) is bool(flow_run)


def test_a_span_of_indexes_that_no_job_has_is_passed_over() -> None:
    assert pods.parse_ranges("1,3-99999999999") == {1}


def test_a_waiting_pod_with_an_index_that_is_none_keeps_no_other_from_its_node() -> None:
    odd, good = pod(0, of="odd", phase="Pending"), pod(0, of="good", phase="Pending")
    odd["metadata"]["annotations"][COMPLETION_INDEX] = "²"
    found = find_bindings([odd, good], (), [node("a")], {}, Guard("test"))
    assert set(found.values()) == {"a"}
    assert len(found) == 2


@pytest.mark.parametrize("gpus", ["²", "1.5", "4Gi", "1k", "-1", "", True, 1.5, [1]], ids=repr)
@pytest.mark.parametrize("which", [0, 1], ids=["first container", "second container"])
def test_gpus_that_are_no_whole_number_are_refused_by_their_field(which: int, gpus: Any) -> None:
    made = job()
    containers = made["spec"]["template"]["spec"]["containers"]
    containers.append({"name": "second"})
    containers[which]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    with pytest.raises(QoSError) as refused:
        jobs.spec_of(prepare_manifest(made, now=CREATED_AT))
    assert refused.value.field == f"spec.template.spec.containers[{which}].resources"
    assert isinstance(jobs.job_row(made), jobs.BadJob)


def test_a_running_job_of_more_workers_than_may_be_counts_as_many_as_may() -> None:
    made = job(width=2**31 - 1, suspend=False, status=EVER_SUSPENDED)
    assert jobs.current_width(made) == MOST_WORKERS
    assert isinstance(jobs.job_row(made, (pod(0, node="a"),)), jobs.BadJob)


def test_a_finish_beyond_the_calendar_is_told_without_an_instant() -> None:
    made = job()
    late = Forecast(5.6e11, 6e11, 0.0, WHY)
    found = job_patch(made, row(made), [Forecasted("default/job", late, WHY)], now=CREATED_AT)
    assert found is not None
    said = json_tree.annotations_of(found.patch.body)
    assert names.P50_FINISH not in said
    assert names.P90_FINISH not in said
    assert status_annotation.read_verdict({"metadata": {"annotations": said}}) == late


def test_an_offer_beyond_the_calendar_is_told_as_its_last_instant() -> None:
    made = job(deadline="1h")
    offer = Offer("deadline", 6e11, (1,), 6e11, CREATED_AT)
    refused = Refuse("default/job", Refusal(WHY, (offer,)), WHY)
    found = job_patch(made, row(made), [refused], now=CREATED_AT)
    assert found is not None
    assert "deadline: 9999-12-31T23:59:59Z" in dict(found.events)["offered"]


@pytest.mark.parametrize("at", [6e11, 1e300, float("inf"), -1.0, float("nan"), float("-inf")])
def test_any_number_is_written_as_an_instant_of_the_calendar(at: float) -> None:
    assert format_instant(at) is None
    assert format_rfc3339(at)[:4] in {"1970", "9999"}


@pytest.mark.parametrize("text", ["soon", "2026-11-21T08:00:00", None, 5, "10000-01-01T00:00:00Z"])
def test_an_instant_that_is_none_is_survived(text: Any) -> None:
    made = job(status={"conditions": [{"type": "Failed", "status": "True"}, 5]})
    made["status"]["conditions"][0]["lastTransitionTime"] = text
    made["metadata"]["creationTimestamp"] = text
    assert jobs.submission_instant(made, TrainingSpec(name="a", qos=QoS())) == 0.0
    assert conditions.end_instant(made) == float("inf"), "it is not removed"


def test_epochs_that_take_more_than_ten_years_in_all_are_refused_in_words() -> None:
    with pytest.raises(QoSError, match="1000000 epochs of 4d are more than ten years even on 8"):
        TrainingSpec.from_manifest(job(epochs="1000000", epoch_estimate="4d", widths="auto"))


@pytest.mark.parametrize(
    ("epochs", "estimate", "widths"),
    [
        pytest.param("90", "40d", None, id="ten years on one worker"),
        pytest.param("1000000", "300s", "1", id="a million short ones"),
        pytest.param("1", "3652d", "1", id="one of ten years"),
        pytest.param("100", "400d", "1..64", id="a hundred years of work on 64 workers"),
    ],
)
def test_an_honest_long_job_is_accepted(epochs: str, estimate: str, widths: str | None) -> None:
    made = job(epochs=epochs, epoch_estimate=estimate, widths=widths or "auto")
    assert str(TrainingSpec.from_manifest(made).epochs) == epochs


def test_a_state_or_verdict_of_nonsense_counts_as_not_written() -> None:
    random = Random(11)
    for _ in range(3000):
        fields = {name: random.choice((*VALUES, *NUMBERS)) for name in status_annotation.FIELDS}
        state = status_annotation.read_status({})
        found = status_annotation.read_status_text(json.dumps(fields))
        for name in status_annotation.FIELDS:
            value, fresh = getattr(found, name), getattr(state, name)
            assert value == fresh or type(value) in {int, float, str, tuple}
        assert found.since == found.since
    for seed in range(3000):
        made = poisoned(Random(seed), "p", "default", {"spec": {"containers": [{}]}})
        told = status_annotation.read_verdict(made)
        assert told is None or told.reason.text
        assert (
            told is None
            or status_annotation.read_verdict(said(status_annotation.verdict_text(told))) == told
        )


def said(verdict: str) -> Json:
    return {"metadata": {"annotations": {names.VERDICT: verdict}}}


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: verdict["kind"])
def test_a_verdict_is_read_if_all_of_it_makes_sense(verdict: Json) -> None:
    assert isinstance(
        status_annotation.read_verdict(said(json.dumps(verdict))), Promise | Refusal | Forecast
    )
    broken = {**verdict, "p90_at": "²"}
    assert status_annotation.read_verdict(said(json.dumps(broken))) is None


AFFINITIES = [
    {"preferredDuringSchedulingIgnoredDuringExecution": [{"preference": {"matchFields": [1]}}]},
    {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": "²"}]},
    {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [1]}},
    {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"values": [5]}]}]
        }
    },
]


@pytest.mark.parametrize("affinity", AFFINITIES, ids=str)
def test_affinity_of_wrong_types_is_refused_by_its_field_at_every_door(
    affinity: Json, world: LiveCluster
) -> None:
    made = job()
    made["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": affinity}
    with pytest.raises(ApiError, match="nodeAffinity") as refused:
        world.api.create("jobs", made)
    assert refused.value.status == 422
    for ask in (world.submit, lambda made: world.preview(made, CREATED_AT)):
        with pytest.raises(QoSError, match="is wanted") as problem:
            ask(made)
        assert problem.value.field.startswith("spec.template.spec.affinity.nodeAffinity.")


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_a_manifest_nested_too_deeply_is_refused_in_words(depth: int, world: LiveCluster) -> None:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    made = job()
    made["spec"]["template"]["spec"]["volumes"] = inner
    with pytest.raises(QoSError, match="manifest: no JSON that a Job can be made of"):
        world.submit(made)


def test_a_manifest_with_a_number_or_text_that_json_cannot_hold_is_refused(
    world: LiveCluster,
) -> None:
    for value in (2**70, "\ud800"):
        made = job()
        made["spec"]["odd"] = value
        with pytest.raises(QoSError, match="no JSON that a Job can be made of"):
            world.submit(made)
