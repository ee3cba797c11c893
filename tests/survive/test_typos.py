"""A slip of the pen in an annotation costs no promise: the Job goes on by what it declared before."""

import pytest

from laxity import json_tree, names
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects.jobs import spec_of
from laxity_k8s.objects.status_annotation import verdict_text
from laxity_k8s.observe.last_declared import GOES_ON, LastDeclared
from laxity_scheduler.model.reasons import reason
from tests.support.breaking import BAD, put, seen
from tests.support.builders import promise
from tests.support.manifests import job
from tests.support.two_jobs import running, told

DEADLINE_AT = 2e9


@pytest.fixture
def world(two_jobs: LiveCluster) -> LiveCluster:
    promised = running("bad")
    promised["metadata"]["annotations"] |= {
        names.VERDICT: verdict_text(promise(DEADLINE_AT)),
        names.DEADLINE: "2h",
    }
    promised["metadata"]["labels"][names.VERDICT_LABEL] = "promised"
    put(two_jobs, promised)
    seen(two_jobs, BAD)
    return two_jobs


@pytest.mark.parametrize(
    ("name", "typo", "words"),
    [
        (names.DEADLINE, "2hh", "'2hh' is no duration"),
        (names.EPOCHS, "x", "'x' is not a whole number"),
        (names.WIDTHS, "0", "0 workers"),
    ],
)
def test_a_promised_job_goes_on_by_what_it_declared_before(
    name: str, typo: str, words: str, world: LiveCluster
) -> None:
    before = world.observe().by_id[BAD]
    world.annotate(BAD, {name: typo})
    for _ in range(2):
        row = world.observe().by_id[BAD]
        assert (row.verdict, row.deadline_at, row.widths, row.workload) == (
            before.verdict, before.deadline_at, before.widths, before.workload,
        )  # fmt: skip
        assert not row.asked
    assert words in told(world)
    assert told(world).endswith(GOES_ON)
    job_now = world.api.get("jobs", BAD)
    assert json_tree.labels_of(job_now)[names.VERDICT_LABEL] == "promised"
    world.annotate(BAD, {names.DEADLINE: "3h", names.EPOCHS: "4", names.WIDTHS: "1"})
    row = world.observe().by_id[BAD]
    assert row.asked, "as soon as it makes sense"
    assert row.deadline_at == before.deadline_at + 3600.0
    assert BAD not in world.find_left_out()
    assert row.verdict is not None
    assert told(world) == row.verdict.reason.text


def test_a_pin_that_is_taken_back_is_no_reason_any_more(world: LiveCluster) -> None:
    world.annotate(BAD, {names.PIN: "by hand", names.REASON: reason("pinned").text})
    assert world.observe().by_id[BAD].pinned
    assert told(world) == reason("pinned").text
    world.annotate(BAD, {names.PIN: None})
    row = world.observe().by_id[BAD]
    assert not row.pinned
    assert row.verdict is not None
    assert told(world) == row.verdict.reason.text


def test_a_service_that_never_saw_it_make_sense_leaves_it_out_and_its_promise_stands() -> None:
    wrong = job("bad", deadline="2hh", verdict=verdict_text(promise(DEADLINE_AT)))
    spec, bad = LastDeclared().read(wrong)
    assert spec is None
    assert bad is not None
    assert bad.put_off
    assert GOES_ON not in bad.problems


def test_a_job_without_a_promise_and_another_of_its_name_are_refused() -> None:
    seen_before = LastDeclared()
    sound = job("bad")
    assert seen_before.read(sound) == (spec_of(sound), None)
    spec, bad = seen_before.read(job("bad", deadline="2hh"))
    assert spec is None
    assert bad is not None
    assert not bad.put_off
    another = job("bad", deadline="2hh", verdict=verdict_text(promise(DEADLINE_AT)))
    another["metadata"]["uid"] = "another"
    assert seen_before.read(another)[0] is None
