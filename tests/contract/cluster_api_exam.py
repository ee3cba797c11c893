"""What every ClusterApi must do: Jobs behave as on a real Kubernetes, wherever they run.

Each question takes a Bench (an api, and how to say what a pod does there) and asserts one row of
how Jobs really behave. Run them with `@pytest.mark.parametrize("question", EXAM, ids=named)`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from laxity_k8s import merge, pods
from laxity_k8s.admission import condition
from laxity_k8s.api import ApiError, ClusterApi, Json, Patch
from laxity_k8s.reconcile import seconds
from tests.contract.watching import Eyes


class Bench(Protocol):
    """A cluster with at least 6 free GPUs, and pods that do as they are told."""

    @property
    def api(self) -> ClusterApi: ...

    def template(self, *, run_s: float | None = None, stop_s: float = 0.0) -> Json:
        """A pod template with one GPU: it succeeds after `run_s` (None: never), and when it is
        deleted it lingers for `stop_s`.
        """
        ...


Question = Callable[[Bench], None]
NAMESPACE = "default"


def named(question: Question) -> str:
    return question.__name__.replace("_", " ")


def job(
    bench: Bench, name: str, *, width: int = 2, suspend: bool = True, **template: Any
) -> tuple[str, Json]:
    """Create an Indexed Job; its id and what the API answered."""
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "suspend": suspend,
            "completionMode": "Indexed",
            "parallelism": width,
            "completions": width,
            "backoffLimit": 1000,
            "podReplacementPolicy": "Failed",
            "template": bench.template(**template),
        },
    }
    return f"{NAMESPACE}/{name}", bench.api.create("jobs", manifest)


def spec(bench: Bench, job_id: str, **changes: Any) -> Json:
    return bench.api.patch(Patch("jobs", job_id, {"spec": changes}))


def resize(bench: Bench, job_id: str, width: int, **changes: Any) -> Json:
    return spec(bench, job_id, parallelism=width, completions=width, **changes)


def running(eyes: Eyes, job_id: str, indexes: set[int]) -> Callable[[], bool]:
    """Exactly these indexes run, and none is on its way out."""
    return lambda: (
        all(pods.ready(pod) and not pods.leaving(pod) for pod in eyes.pods(job_id))
        and {pods.index(pod) for pod in eyes.pods(job_id)} == indexes
        and merge.dig(eyes.job(job_id), "status", "ready") == len(indexes)
    )


def status(eyes: Eyes, job_id: str, field: str) -> Any:
    return merge.dig(eyes.job(job_id), "status", field)


def _counts(job: Json) -> tuple[int, int]:
    """(active, terminating)"""
    said = job.get("status", {})
    return said.get("active", 0), said.get("terminating", 0)


def refused(bench: Bench, patch: Patch) -> int:
    with pytest.raises(ApiError) as refusal:
        bench.api.patch(patch)
    return refusal.value.status


def a_suspended_job_has_the_condition_and_neither_start_time_nor_pods(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-suspended")
    with Eyes(bench.api) as eyes:
        eyes.until(lambda: condition(eyes.job(job_id), "Suspended") == "True", "Suspended")
        assert status(eyes, job_id, "startTime") is None
        assert eyes.pods(job_id) == []


def a_resumed_job_gets_a_pod_for_each_index(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-resumed")
    with Eyes(bench.api) as eyes:
        spec(bench, job_id, suspend=False)
        eyes.until(running(eyes, job_id, {0, 1}), "both indexes run")
        assert condition(eyes.job(job_id), "Suspended") in {"False", ""}
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
        if kind != "pods" or pods.owner(change.object)[0] != job_id:
            continue
        uid = change.object["metadata"]["uid"]
        if pods.index(change.object) != index:
            continue
        over = change.type == "DELETED" or pods.over(change.object)
        (alive.discard if over else alive.add)(uid)
        most = max(most, len(alive))
    return most


def every_resume_rewrites_the_start_time_and_suspending_keeps_it(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-start-time", width=1, suspend=False)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0}), "it runs")
        first = seconds(status(eyes, job_id, "startTime"))
        eyes.until(_a_second_later(bench, job_id, first), "a second has passed")
        spec(bench, job_id, suspend=True)
        eyes.until(lambda: condition(eyes.job(job_id), "Suspended") == "True", "Suspended")
        assert seconds(status(eyes, job_id, "startTime")) == first
        spec(bench, job_id, suspend=False)
        eyes.until(
            lambda: seconds(status(eyes, job_id, "startTime")) > first, "the start time is new"
        )


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
        eyes.until(lambda: condition(eyes.job(job_id), "Suspended") == "True", "Suspended")
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


def other_template_fields_never_change(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-other-fields")
    body = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 77}}}}
    assert refused(bench, Patch("jobs", job_id, body)) == 422


def a_suspended_job_is_resized_and_one_patch_resizes_and_resumes(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-resized", width=1)
    resize(bench, job_id, 3)
    with Eyes(bench.api) as eyes:
        resize(bench, job_id, 2, suspend=False)
        eyes.until(running(eyes, job_id, {0, 1}), "it runs at the last width")


def completions_change_only_together_with_parallelism(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-together")
    assert refused(bench, Patch("jobs", job_id, {"spec": {"completions": 3}})) == 422
    after = spec(bench, job_id, parallelism=1)
    assert (after["spec"]["parallelism"], after["spec"]["completions"]) == (1, 2)


def a_negative_width_is_refused(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-negative")
    body = {"spec": {"parallelism": -1, "completions": -1}}
    assert refused(bench, Patch("jobs", job_id, body)) == 422


def a_width_of_zero_completes_the_job(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-zero", suspend=False)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0, 1}), "it runs")
        resize(bench, job_id, 0)
        eyes.until(lambda: condition(eyes.job(job_id), "Complete") == "True", "Complete")
        assert condition(eyes.job(job_id), "SuccessCriteriaMet") == "True"


def a_job_whose_workers_all_succeed_is_complete(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-success", suspend=False, run_s=0.2)
    with Eyes(bench.api) as eyes:
        eyes.until(lambda: condition(eyes.job(job_id), "Complete") == "True", "Complete")
        assert condition(eyes.job(job_id), "SuccessCriteriaMet") == "True"
        assert status(eyes, job_id, "succeeded") == 2
        assert status(eyes, job_id, "completedIndexes") in {"0,1", "0-1"}
        assert status(eyes, job_id, "completionTime") is not None


def a_patch_of_a_finished_job_is_accepted_and_starts_nothing(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-finished", width=1, suspend=False, run_s=0.2)
    with Eyes(bench.api) as eyes:
        eyes.until(lambda: condition(eyes.job(job_id), "Complete") == "True", "Complete")
        resize(bench, job_id, 3)
        other, _ = job(bench, "exam-after-finished", width=1, suspend=False)
        eyes.until(running(eyes, other, {0}), "a later Job runs")
        assert eyes.pods(job_id) == []
        assert condition(eyes.job(job_id), "Complete") == "True"


def a_patch_on_an_old_revision_is_a_conflict_and_changes_nothing(bench: Bench) -> None:
    job_id, created = job(bench, "exam-stale")
    bench.api.patch(Patch("jobs", job_id, {"metadata": {"annotations": {"exam/by": "other"}}}))
    body = {
        "metadata": {"resourceVersion": created["metadata"]["resourceVersion"]},
        "spec": {"suspend": False},
    }
    assert refused(bench, Patch("jobs", job_id, body)) == 409
    assert bench.api.get("jobs", job_id)["spec"]["suspend"] is True


def a_patch_on_the_present_revision_is_carried_out(bench: Bench) -> None:
    job_id, created = job(bench, "exam-fresh")
    with Eyes(bench.api) as eyes:
        eyes.until(lambda: condition(eyes.job(job_id), "Suspended") == "True", "Suspended")
    present = bench.api.get("jobs", job_id)["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": present, "annotations": {"exam/by": "me"}}}
    after = bench.api.patch(Patch("jobs", job_id, body))
    assert after["metadata"]["annotations"]["exam/by"] == "me"
    assert after["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]


def null_in_a_merge_patch_removes_an_annotation(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-null")
    for value in ("here", None):
        body = {"metadata": {"annotations": {"exam/thing": value}}}
        after = bench.api.patch(Patch("jobs", job_id, body))
    assert "exam/thing" not in merge.annotations(after)


def what_is_not_there_is_404_and_a_taken_name_409(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-taken")
    with pytest.raises(ApiError) as taken:
        job(bench, "exam-taken")
    with pytest.raises(ApiError) as missing:
        bench.api.get("jobs", f"{NAMESPACE}/exam-not-there")
    with pytest.raises(ApiError) as undeletable:
        bench.api.delete("jobs", f"{NAMESPACE}/exam-not-there")
    assert taken.value.status == 409
    assert missing.value.status == undeletable.value.status == 404
    assert refused(bench, Patch("jobs", f"{NAMESPACE}/exam-not-there", {"spec": {}})) == 404
    assert bench.api.get("jobs", job_id)["metadata"]["name"] == "exam-taken"


def an_invalid_job_is_422(bench: Bench) -> None:
    with pytest.raises(ApiError) as refusal:
        bench.api.create(
            "jobs",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "exam-invalid", "namespace": NAMESPACE},
                "spec": {"parallelism": -1, "template": bench.template()},
            },
        )
    assert refusal.value.status == 422


def an_indexed_job_has_one_completion_unless_it_says_more(bench: Bench) -> None:
    made = bench.api.create(
        "jobs",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "exam-defaults", "namespace": NAMESPACE},
            "spec": {"suspend": True, "completionMode": "Indexed", "template": bench.template()},
        },
    )
    assert (made["spec"]["parallelism"], made["spec"]["completions"]) == (1, 1)


def many_patches_have_outcomes_in_order(bench: Bench) -> None:
    made = [job(bench, f"exam-many-{number}")[0] for number in range(5)]
    wished = [
        Patch("jobs", job_id, {"metadata": {"annotations": {"exam/n": str(number)}}})
        for number, job_id in enumerate([*made, f"{NAMESPACE}/exam-nowhere"])
    ]
    outcomes = list(bench.api.patch_many(wished))
    assert [outcome.patch for outcome in outcomes] == wished
    assert [outcome.status for outcome in outcomes] == [200] * 5 + [404]
    notes = [merge.annotations(outcome.object)["exam/n"] for outcome in outcomes[:5]]
    assert notes == ["0", "1", "2", "3", "4"]


def a_watch_tells_of_all_changes_after_its_revision_in_order(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-watched")
    with Eyes(bench.api) as eyes:
        for number in range(3):
            body = {"metadata": {"annotations": {"exam/step": str(number)}}}
            bench.api.patch(Patch("jobs", job_id, body))
        bench.api.delete("jobs", job_id)
        eyes.until(lambda: not eyes.job(job_id), "it is gone")
        mine = [
            c for kind, c in eyes.changes if kind == "jobs" and merge.identity(c.object) == job_id
        ]
        steps = [merge.annotations(change.object).get("exam/step") for change in mine]
    assert mine[-1].type == "DELETED"
    assert list(dict.fromkeys(step for step in steps if step)) == ["0", "1", "2"]


def a_deleted_job_takes_its_pods_along(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-deleted", suspend=False)
    with Eyes(bench.api) as eyes:
        eyes.until(running(eyes, job_id, {0, 1}), "it runs")
        bench.api.delete("jobs", job_id)
        eyes.until(lambda: not eyes.job(job_id) and not eyes.pods(job_id), "nothing is left")


def a_deletion_by_uid_spares_who_has_taken_the_name(bench: Bench) -> None:
    job_id, before = job(bench, "exam-renamed")
    with Eyes(bench.api) as eyes:
        bench.api.delete("jobs", job_id, uid=before["metadata"]["uid"])
        eyes.until(lambda: not eyes.job(job_id), "the first is gone")
    _, after = job(bench, "exam-renamed")
    with pytest.raises(ApiError) as spared:
        bench.api.delete("jobs", job_id, uid=before["metadata"]["uid"])
    assert spared.value.status == 409
    assert bench.api.get("jobs", job_id)["metadata"]["uid"] == after["metadata"]["uid"]


def a_selector_lists_only_what_carries_the_label(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-labelled")
    bench.api.patch(Patch("jobs", job_id, {"metadata": {"labels": {"exam": "yes"}}}))
    job(bench, "exam-unlabelled")
    for selector in ("exam=yes", "exam"):
        found = bench.api.list("jobs", selector=selector).items
        assert [merge.identity(one) for one in found] == [job_id]


def a_pod_sits_on_the_node_that_its_affinity_names(bench: Bench) -> None:
    nodes = [merge.identity(node) for node in bench.api.list("nodes").items]
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
        assert {pods.node(pod) for pod in eyes.pods(job_id)} == {nodes[-1]}


EXAM: tuple[Question, ...] = (
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
    other_template_fields_never_change,
    a_suspended_job_is_resized_and_one_patch_resizes_and_resumes,
    completions_change_only_together_with_parallelism,
    a_negative_width_is_refused,
    a_width_of_zero_completes_the_job,
    a_job_whose_workers_all_succeed_is_complete,
    a_patch_of_a_finished_job_is_accepted_and_starts_nothing,
    a_patch_on_an_old_revision_is_a_conflict_and_changes_nothing,
    a_patch_on_the_present_revision_is_carried_out,
    null_in_a_merge_patch_removes_an_annotation,
    what_is_not_there_is_404_and_a_taken_name_409,
    an_invalid_job_is_422,
    an_indexed_job_has_one_completion_unless_it_says_more,
    many_patches_have_outcomes_in_order,
    a_watch_tells_of_all_changes_after_its_revision_in_order,
    a_deleted_job_takes_its_pods_along,
    a_deletion_by_uid_spares_who_has_taken_the_name,
    a_selector_lists_only_what_carries_the_label,
    a_pod_sits_on_the_node_that_its_affinity_names,
)
