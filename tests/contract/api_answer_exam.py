"""How every Cluster API answers: what it takes, refuses, lists and tells a watch of.

Each question takes a Bench and asserts one rule of Kubernetes' API. Run them with
`@pytest.mark.parametrize("question", ANSWERS, ids=named)`.
"""

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import ApiError, Patch
from laxity_k8s.objects.conditions import read_condition
from tests.contract.cluster_bench import NAMESPACE, Bench, Question, job, refused, spec
from tests.support.waiting import Eyes


def other_template_fields_never_change(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-other-fields")
    body = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 77}}}}
    assert refused(bench, Patch("jobs", job_id, body)) == 422


def completions_change_only_together_with_parallelism(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-together")
    assert refused(bench, Patch("jobs", job_id, {"spec": {"completions": 3}})) == 422
    after = spec(bench, job_id, parallelism=1)
    assert (after["spec"]["parallelism"], after["spec"]["completions"]) == (1, 2)


def a_negative_width_is_refused(bench: Bench) -> None:
    job_id, _ = job(bench, "exam-negative")
    body = {"spec": {"parallelism": -1, "completions": -1}}
    assert refused(bench, Patch("jobs", job_id, body)) == 422


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
        eyes.until(lambda: read_condition(eyes.job(job_id), "Suspended") == "True", "Suspended")
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
    assert "exam/thing" not in json_tree.annotations_of(after)


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
    notes = [json_tree.annotations_of(outcome.object)["exam/n"] for outcome in outcomes[:5]]
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
            c
            for kind, c in eyes.changes
            if kind == "jobs" and json_tree.object_id(c.object) == job_id
        ]
        steps = [json_tree.annotations_of(change.object).get("exam/step") for change in mine]
    assert mine[-1].type == "DELETED"
    assert list(dict.fromkeys(step for step in steps if step)) == ["0", "1", "2"]


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
        assert [json_tree.object_id(one) for one in found] == [job_id]


def an_object_says_what_it_is_however_it_is_read(bench: Bench) -> None:
    """Lists of an API server leave it out; a Job that is no Job would be refused."""
    job_id, made = job(bench, "exam-kind")
    with Eyes(bench.api) as eyes:
        labels = {"metadata": {"labels": {"exam": "kind"}}}
        answered = bench.api.patch(Patch("jobs", job_id, labels))
        eyes.until(lambda: "exam" in json_tree.labels_of(eyes.job(job_id)), "the change is told")
        told = eyes.job(job_id)
    (listed,) = bench.api.list("jobs", selector="exam=kind").items
    (among,) = [one for one in bench.api.list("jobs").items if json_tree.object_id(one) == job_id]
    for found in (made, answered, bench.api.get("jobs", job_id), listed, among, told):
        assert (found["apiVersion"], found["kind"]) == ("batch/v1", "Job")


ANSWERS: tuple[Question, ...] = (
    other_template_fields_never_change,
    completions_change_only_together_with_parallelism,
    a_negative_width_is_refused,
    an_invalid_job_is_422,
    an_indexed_job_has_one_completion_unless_it_says_more,
    a_patch_on_an_old_revision_is_a_conflict_and_changes_nothing,
    a_patch_on_the_present_revision_is_carried_out,
    null_in_a_merge_patch_removes_an_annotation,
    many_patches_have_outcomes_in_order,
    what_is_not_there_is_404_and_a_taken_name_409,
    a_deletion_by_uid_spares_who_has_taken_the_name,
    a_selector_lists_only_what_carries_the_label,
    an_object_says_what_it_is_however_it_is_read,
    a_watch_tells_of_all_changes_after_its_revision_in_order,
)
