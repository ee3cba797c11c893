"""What the API server stores otherwise than it was sent is found, field by field."""

from laxity_k8s.act.put_back import describe_put_back
from laxity_k8s.cluster_api import Json, Patch, PatchResult
from tests.support.breaking import BAD
from tests.support.manifests import job


def stored(sent: Json, **there: Json) -> str:
    made = job("bad")
    made["spec"] |= there.get("spec", {})
    made["metadata"] |= there.get("metadata", {})
    return describe_put_back(PatchResult(Patch("jobs", BAD, sent), 200, made))


def test_fields_that_differ_from_what_was_sent_are_named() -> None:
    sent = {
        "spec": {"suspend": False, "parallelism": 2, "template": {"spec": {}}},
        "metadata": {"annotations": {"a": "1"}, "labels": {"b": "2"}, "resourceVersion": "7"},
    }

    words = stored(sent, spec={"suspend": True, "parallelism": 2})

    assert "puts back annotation a, label b, spec.suspend" in words


def test_patch_that_was_taken_whole_says_nothing() -> None:
    sent = {"spec": {"suspend": False}, "metadata": {"annotations": {"a": "1", "gone": None}}}

    assert stored(sent, spec={"suspend": False}, metadata={"annotations": {"a": "1"}}) == ""
