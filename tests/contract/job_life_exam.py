"""How Jobs live on every cluster: started, stopped, resized, moved and ended as on Kubernetes.

Each question takes a Bench and asserts one row of how Jobs really behave, wherever they run. Run
them with `@pytest.mark.parametrize("question", LIVES, ids=named)`.
"""

from collections.abc import Callable

from laxity import json_tree
from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json, Patch
from laxity_k8s.objects import pods
from laxity_k8s.objects.conditions import read_condition
from tests.contract.cluster_bench import (
    Bench,
    Question,
    job,
    refused,
    resize,
    running,
    spec,
    status,
)
from tests.support.waiting import Eyes


def _counts(job: Json) -> tuple[int, int]:
    """(active, terminating)"""
    said = job.get("status", {})
    return said.get("active", 0), said.get("terminating", 0)


def a_suspended_job_has_the_condition_and_neither_start_time_nor_pods(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-suspended")
    with Eyes(bench.api) as eyes:
        eyes.until(lambda: read_condition(eyes.job(job_id), "Suspended") == "True", "Suspended")
        assert status(eyes, job_id, "startTime") is None
        assert eyes.pods(job_id) == []


def a_resumed_job_gets_a_pod_for_each_index(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-resumed")
    with Eyes(bench.api) as eyes:
        spec(bench, job_id, suspend=False)
        eyes.until(running(eyes, job_id, {0, 1}), "both indexes run")
        assert read_condition(eyes.job(job_id), "Suspended") in {"False", ""}
        assert status(eyes, job_id, "startTime") is not None
        assert status(eyes, job_id, "active") == 2


def growing_adds_pods_and_leaves_the_old_ones_alone(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-growing", suspend=False)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0, 1}), "both indexes run")
        before = {pod["metadata"]["uid"] for pod in eyes.pods(job_id)}
        resize(bench, job_id, 4)
        eyes.until(running(eyes, job_id, {0, 1, 2, 3}), "four indexes run")
        assert before < {pod["metadata"]["uid"] for pod in eyes.pods(job_id)}


def shrinking_takes_the_highest_indexes_and_counts_them_as_terminating(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-shrinking", width=4, suspend=False, stop_s=1.0)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0, 1, 2, 3}), "four indexes run")
        resize(bench, job_id, 1)
        eyes.saw(job_id, lambda job: _counts(job) == (1, 3), "one is active and three terminate")
        eyes.until(running(eyes, job_id, {0}), "only index 0 is left")
        eyes.until(lambda: _counts(eyes.job(job_id)) == (1, 0), "none terminates")


def a_suspended_job_is_inactive_at_once_and_terminates_for_its_grace(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-stopping", suspend=False, stop_s=1.0)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0, 1}), "both indexes run")
        spec(bench, job_id, suspend=True)
        eyes.saw(job_id, lambda job: _counts(job) == (0, 2), "none is active and two terminate")
        eyes.until(lambda: _counts(eyes.job(job_id)) == (0, 0), "they are gone")
        eyes.until(lambda: eyes.pods(job_id) == [], "no pod is left")
        assert not status(eyes, job_id, "failed")
        assert not status(eyes, job_id, "succeeded")


def a_resume_while_pods_terminate_waits_until_they_are_gone(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-overlap", suspend=False, stop_s=1.0)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0, 1}), "both indexes run")
        old = {pod["metadata"]["uid"] for pod in eyes.pods(job_id)}
        spec(bench, job_id, suspend=True)
        eyes.saw(job_id, lambda job: _counts(job) == (0, 2), "both terminate")
        spec(bench, job_id, suspend=False)
        eyes.until(running(eyes, job_id, {0, 1}), "both indexes run again")
        assert not old & {pod["metadata"]["uid"] for pod in eyes.pods(job_id)}
        for index in (0, 1):
            assert _most_at_once(eyes, job_id, index) == 1


def _most_at_once(eyes: Eyes, job_id: str, index: int) -> int:
    """The most pods of one index that were alive at the same time."""
    alive: set[str] = set()
    most = 0
    for kind, change in eyes.changes:
        if kind != "pods" or pods.owner_of(change.object)[0] != job_id:
            continue
        uid = change.object["metadata"]["uid"]
        if pods.index_of(change.object) != index:
            continue
        over = change.type == "DELETED" or pods.is_finished(change.object)
        (alive.discard if over else alive.add)(uid)
        most = max(most, len(alive))
    return most


def every_resume_rewrites_the_start_time_and_suspending_keeps_it(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-start-time", width=1, suspend=False)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0}), "it runs")
        first = began(eyes, job_id)
        eyes.until(_a_second_later(bench, job_id, first), "a second has passed")
        spec(bench, job_id, suspend=True)
        eyes.until(lambda: read_condition(eyes.job(job_id), "Suspended") == "True", "Suspended")
        assert began(eyes, job_id) == first
        spec(bench, job_id, suspend=False)
        eyes.until(lambda: began(eyes, job_id) > first, "the start time is new")


def began(eyes: Eyes, job_id: str) -> float:
    return instant_at(status(eyes, job_id, "startTime")) or 0.0


def _a_second_later(bench: Bench, job_id: str, since: float) -> Callable[[], bool]:
    """True once the clock has passed the second that start times are rounded to."""
    import time

    ticks = [0]

    def passed() -> bool:
        ticks[0] += 1
        body = {"metadata": {"annotations": {"exam/tick": str(ticks[0])}}}
        bench.api.patch(Patch("jobs", job_id, body))
        return time.time() >= since + 1.1

    return passed


def a_template_is_fixed_once_the_job_has_run_until_its_start_time_is_cleared(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-template", width=1, suspend=False)
    affinity = {"template": {"spec": {"nodeSelector": {"exam": "elsewhere"}}}}
    move = Patch("jobs", job_id, {"spec": affinity})
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0}), "it runs")
        assert refused(bench, move) == 422
        spec(bench, job_id, suspend=True)
        eyes.until(lambda: read_condition(eyes.job(job_id), "Suspended") == "True", "Suspended")
        assert refused(bench, move) == 422
        bench.api.patch(Patch("jobs", job_id, {"status": {"startTime": None}}, "status"))
        after = bench.api.patch(move)
    assert after["spec"]["template"]["spec"]["nodeSelector"] == {"exam": "elsewhere"}


def the_start_time_of_a_running_job_cannot_be_cleared(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-cleared", width=1, suspend=False)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0}), "it runs")
        assert (
            refused(bench, Patch("jobs", job_id, {"status": {"startTime": None}}, "status")) == 422
        )


def a_template_of_a_job_that_never_ran_takes_annotations_and_affinity(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-fresh-template")
    after = spec(
        bench,
        job_id,
        template={
            "metadata": {"annotations": {"exam/said": "yes"}},
            "spec": {"nodeSelector": {"exam": "elsewhere"}},
        },
    )
    assert after["spec"]["template"]["metadata"]["annotations"]["exam/said"] == "yes"


def a_suspended_job_is_resized_and_one_patch_resizes_and_resumes(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-resized", width=1)
    resize(bench, job_id, 3)
    with Eyes(bench.api) as eyes:
        resize(bench, job_id, 2, suspend=False)
        eyes.until(running(eyes, job_id, {0, 1}), "it runs at the last width")


def a_width_of_zero_completes_the_job(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-zero", suspend=False)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0, 1}), "it runs")
        resize(bench, job_id, 0)
        eyes.until(lambda: read_condition(eyes.job(job_id), "Complete") == "True", "Complete")
        assert read_condition(eyes.job(job_id), "SuccessCriteriaMet") == "True"


def a_job_whose_workers_all_succeed_is_complete(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-success", suspend=False, run_s=0.2)
    with Eyes(bench.api) as eyes:
        eyes.until(lambda: read_condition(eyes.job(job_id), "Complete") == "True", "Complete")
        assert read_condition(eyes.job(job_id), "SuccessCriteriaMet") == "True"
        assert status(eyes, job_id, "succeeded") == 2
        assert status(eyes, job_id, "completedIndexes") in {"0,1", "0-1"}
        assert status(eyes, job_id, "completionTime") is not None


def a_patch_of_a_finished_job_is_accepted_and_starts_nothing(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-finished", width=1, suspend=False, run_s=0.2)
    with Eyes(bench.api) as eyes:
        eyes.until(lambda: read_condition(eyes.job(job_id), "Complete") == "True", "Complete")
        resize(bench, job_id, 3)
        other, _ = job(bench, "exam-after-finished", width=1, suspend=False)
        eyes.until(running(eyes, other, {0}), "a later Job runs")
        assert eyes.pods(job_id) == []
        assert read_condition(eyes.job(job_id), "Complete") == "True"


def a_deleted_job_takes_its_pods_along(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-deleted", suspend=False)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0, 1}), "it runs")
        bench.api.delete("jobs", job_id)
        eyes.until(lambda: not eyes.job(job_id) and not eyes.pods(job_id), "nothing is left")


def a_pod_sits_on_the_node_that_its_affinity_names(bench: Bench) -> None:
    nodes = [json_tree.object_id(node) for node in bench.api.list("nodes").items]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes[-1]]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    job_id, _ = job(bench, "exam-placed")
    with Eyes(bench.api) as eyes:
        spec(
            bench,
            job_id,
            suspend=False,
            template={"spec": {"affinity": {"nodeAffinity": required}}},
        )
        eyes.until(running(eyes, job_id, {0, 1}), "both indexes run")
        assert {pods.node_of(pod) for pod in eyes.pods(job_id)} == {nodes[-1]}


LIVES: tuple[Question, ...] = (
    a_suspended_job_has_the_condition_and_neither_start_time_nor_pods,
    a_resumed_job_gets_a_pod_for_each_index,
    growing_adds_pods_and_leaves_the_old_ones_alone,
    shrinking_takes_the_highest_indexes_and_counts_them_as_terminating,
    a_suspended_job_is_inactive_at_once_and_terminates_for_its_grace,
    a_resume_while_pods_terminate_waits_until_they_are_gone,
    every_resume_rewrites_the_start_time_and_suspending_keeps_it,
    a_template_is_fixed_once_the_job_has_run_until_its_start_time_is_cleared,
    the_start_time_of_a_running_job_cannot_be_cleared,
    a_template_of_a_job_that_never_ran_takes_annotations_and_affinity,
    a_suspended_job_is_resized_and_one_patch_resizes_and_resumes,
    a_width_of_zero_completes_the_job,
    a_job_whose_workers_all_succeed_is_complete,
    a_patch_of_a_finished_job_is_accepted_and_starts_nothing,
    a_deleted_job_takes_its_pods_along,
    a_pod_sits_on_the_node_that_its_affinity_names,
)
