"""No Job's meaning is changed: only elastic Jobs are resized, all others run at the shape they state."""

from dataclasses import replace

import pytest

from laxity import names
from laxity.job.qos import QoSError
from laxity.job.spec import TrainingSpec
from laxity_k8s.act.adoption import find_correction
from laxity_k8s.act.patches import job_patch
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.held_gpus import gpus_reserved, pods_busy
from laxity_k8s.objects.jobs import BadJob
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import job, pod

SUCCESS_POLICY = {"rules": [{"succeededIndexes": "0-1"}]}
AS_WRITTEN = [
    pytest.param({"completions": 6}, id="six items, two at a time"),
    pytest.param({"completionMode": "NonIndexed", "completions": 9}, id="nine items, any order"),
    pytest.param({"completionMode": "NonIndexed", "completions": None}, id="a work queue"),
    pytest.param({"successPolicy": SUCCESS_POLICY}, id="a success policy"),
    pytest.param({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1}, id="failures per index"),
]


def row(made: Json, pods: tuple[Json, ...] = ()) -> Job:
    found = jobs.job_row(made, pods, due_at=0.0, now=1e10)
    assert isinstance(found, Job), found
    return found


@pytest.mark.parametrize("shape", AS_WRITTEN)
def test_a_job_that_is_not_elastic_is_started_at_the_shape_that_it_states(shape: Json) -> None:
    made = job(width=2, spec=shape)
    found = row(made)
    assert found.widths == (2,)
    assert not found.preemptible
    admit = Admit(found.id, 2, ("a", "b"), reason("due_first", laxity_s=1.0, runners_up=0))
    patch = job_patch(made, found, [admit], now=0.0)
    assert patch is not None
    assert patch.patch.body["spec"].keys() == {"suspend", "template"}


@pytest.mark.parametrize("shape", AS_WRITTEN)
@pytest.mark.parametrize("widths", ["1", "1,2,4", "auto"])
def test_other_widths_for_a_job_that_is_not_elastic_are_refused(shape: Json, widths: str) -> None:
    found = jobs.job_row(job(width=2, spec=shape, widths=widths))
    assert isinstance(found, BadJob)
    assert "widths: this Job runs as it is written, on 2" in found.problems[0]


@pytest.mark.parametrize("made", [job(width=3), job(width=3, entry="train:resnet", deadline="1h")])
def test_without_widths_a_job_runs_at_the_parallelism_that_it_states(made: Json) -> None:
    assert row(made).widths == (3,)


def test_laxity_chooses_the_widths_of_a_job_that_says_auto() -> None:
    assert row(job(width=1, widths="auto")).widths == (1, 2, 4, 8)


def test_an_indexed_job_runs_no_more_workers_than_it_has_completions() -> None:
    assert row(job(width=4, spec={"completions": 2})).widths == (2,)


def test_a_job_whose_parallelism_was_changed_by_hand_is_pinned_and_not_refused() -> None:
    made = job(width=4, suspend=False, widths="1,2", spec={"completions": 1})
    made["metadata"]["annotations"][names.STATUS] = '{"wanted": 1}'
    assert row(made).pinned


def test_a_job_of_another_controller_is_refused() -> None:
    made = job(spec={"managedBy": "kueue.x-k8s.io/multikueue"})
    with pytest.raises(QoSError, match=r"managedBy: .*laxity cannot start or stop"):
        TrainingSpec.from_manifest(made)
    assert row(job(spec={"managedBy": "kubernetes.io/job-controller"})).widths == (1,)


def owned(kind: str, api: str, *, controller: bool = True, **spec: object) -> Json:
    made = job(spec=dict(spec))
    owner = {"kind": kind, "apiVersion": api, "name": "mine", "uid": "u", "controller": controller}
    made["metadata"]["ownerReferences"] = [owner]
    return made


@pytest.mark.parametrize(
    ("kind", "api"),
    [
        ("JobSet", "jobset.x-k8s.io/v1alpha2"),
        ("PyTorchJob", "kubeflow.org/v1"),
        ("RayJob", "ray.io/v1"),
        ("Workflow", "argoproj.io/v1alpha1"),
        ("CronJob", "example.com/v1"),
    ],
)
def test_part_of_a_larger_whole_is_refused_and_left_alone(kind: str, api: str) -> None:
    bad = jobs.job_row(owned(kind, api, suspend=False))

    assert isinstance(bad, BadJob)
    assert f"{kind} mine starts and stops this Job" in bad.problems[0]
    assert find_correction(owned(kind, api, suspend=False), now=0.0) is None


def test_run_of_a_cron_job_and_one_that_is_only_owned_are_taken() -> None:
    assert row(owned("CronJob", "batch/v1")).widths == (1,)
    assert row(owned("ConfigMap", "v1", controller=False)).widths == (1,)


def test_job_that_gets_an_owner_later_is_refused() -> None:
    assert row(job()).widths == (1,)
    assert isinstance(jobs.job_row(owned("JobSet", "jobset.x-k8s.io/v1alpha2")), BadJob)


def test_gpus_by_resource_claims_are_named() -> None:
    made = job()
    pod = made["spec"]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    pod["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}

    bad = jobs.job_row(made)

    assert isinstance(bad, BadJob)
    assert "by resource claims (gpu), which laxity does not count" in bad.problems[0]


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        pytest.param({"parallelism": 0, "completions": 3}, "parallelism", id="paused"),
        pytest.param({"parallelism": 0, "completions": 0}, "completions", id="nothing to do"),
        pytest.param({"completions": 0}, "completions", id="no item"),
    ],
)
def test_a_job_that_asks_for_no_pod_is_refused_and_not_started_on_one(
    shape: Json, field: str
) -> None:
    found = jobs.job_row(job(width=2, spec=shape))
    assert isinstance(found, BadJob)
    assert f"{field}: 0: this Job asks for no pod" in "; ".join(found.problems)
    assert row(job(width=2, spec=shape, pin="paused by hand")).pinned


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_pods_that_choose_nodes_by_other_pods_are_left_to_the_scheduler(kind: str) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    made = job(width=2)
    made["spec"]["template"]["spec"]["affinity"] = {kind: {required: [term]}}
    assert row(made).widths == (2,)


def running(*indexes: int, done: tuple[int, ...] = ()) -> tuple[Json, ...]:
    there = [pod(index, node="n") for index in indexes]
    return (*there, *(pod(index, node="n", phase="Succeeded") for index in done))


def test_workers_of_later_items_count_as_workers_and_not_as_leaving() -> None:
    made = job(
        width=2,
        suspend=False,
        nodes='["n", "n"]',
        spec={"completions": 6},
        status={"active": 2, "succeeded": 2, "startTime": "2026-11-21T08:00:00Z"},
    )
    pods = running(2, 3, done=(0, 1))
    found = row(made, pods)
    assert (found.workers, found.terminating_workers, found.fitting_workers) == (2, 0, None)
    assert gpus_reserved(made, found.nodes, 1, pods).total() == 0
    assert pods_busy(pods) == {"n": 2}


@pytest.mark.parametrize(
    ("spec", "status", "pods", "fits"),
    [
        pytest.param({"completions": 6}, {"succeeded": 5}, running(5), None, id="the last item"),
        pytest.param({"completions": 6}, {"succeeded": 4}, running(5), 1, id="one does not run"),
        pytest.param(
            {"completionMode": "NonIndexed", "completions": None},
            {"succeeded": 1, "active": 1},
            (pod(None),),
            None,
            id="the end of a work queue",
        ),
    ],
)
def test_the_last_items_of_a_job_need_fewer_workers(
    spec: Json, status: Json, pods: tuple[Json, ...], fits: int | None
) -> None:
    seen = {"startTime": "2026-11-21T08:00:00Z", **status}
    made = job(width=2, suspend=False, nodes='["n", "n"]', spec=spec, status=seen)
    assert row(made, pods).fitting_workers == fits


def test_a_flow_without_widths_lets_laxity_choose_and_reads_back_as_it_was() -> None:
    spec = TrainingSpec(name="flow", qos=TrainingSpec.from_manifest(job(widths="auto")).qos)
    manifest = replace(spec, entry="train:resnet").to_manifest()
    assert manifest["metadata"]["annotations"][names.WIDTHS] == "auto"
    assert TrainingSpec.from_manifest(manifest).qos.widths is None
