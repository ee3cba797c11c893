"""What an attempt is called, from when it counts, and what has become of it."""

from pathlib import Path

import pytest

from laxity import names
from laxity_k8s.act.key_answer import KeyState, answer_key, state_of
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.attempts import attempt_name, first_submission
from laxity_k8s.objects.jobs import NO_REPORT
from laxity_k8s.objects.status_annotation import JobStatusRecord, digest_terms
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.snapshot import Snapshot
from tests.support.empty_cluster import Nothing
from tests.support.key_walk import REFUSAL
from tests.support.manifests import CREATED, job, pod
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged


@pytest.mark.parametrize(
    ("name", "attempt", "number", "taken", "want"),
    [
        pytest.param("train", "1", 2, (), "train-a2", id="second"),
        pytest.param("train-a2", "2", 3, (), "train-a3", id="third"),
        pytest.param("seed-a1", "1", 2, (), "seed-a1-a2", id="its own name ends so"),
        pytest.param("train", "1", 2, ("train-a2",), "train-a2-2", id="another's name"),
        pytest.param("train", "1", 2, ("train-a2", "train-a2-2"), "train-a2-3", id="two of them"),
        pytest.param("x" * 63, "1", 2, (), "x" * 60 + "-a2", id="long"),
    ],
)
def test_an_attempt_has_the_first_free_name(
    name: str, attempt: str, number: int, taken: tuple[str, ...], want: str
) -> None:
    assert attempt_name(job(name, attempt=attempt), number, taken) == want


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(job(), "2026-11-21T08:00:00.000Z", id="created by hand"),
        pytest.param(job(submitted_at=CREATED), CREATED, id="as created"),
        pytest.param(
            job(submitted_at="2026-11-21T02:00:00.5Z"), "2026-11-21T02:00:00.5Z", id="scheduled"
        ),
        pytest.param(
            job(submitted_at="2026-11-21T09:00:00Z"), "2026-11-21T08:00:00.000Z", id="later"
        ),
        pytest.param(job(submitted_at="now"), "2026-11-21T08:00:00.000Z", id="nonsense"),
    ],
)
def test_attempts_count_from_the_first_submission(made: Json, want: str) -> None:
    assert first_submission(made) == want


def refused(*, suspend: bool = True, amended: bool = False) -> Json:
    made = job(suspend=suspend, deadline="1h", verdict=REFUSAL)
    terms = "others" if amended else digest_terms(made)
    made["metadata"]["annotations"][names.STATUS] = JobStatusRecord(terms=terms).to_text()
    return made


def with_condition(kind: str) -> Json:
    return job(status={"conditions": [{"type": kind, "status": "True"}]})


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(job(), KeyState.LIVE, id="waits for a verdict"),
        pytest.param(job(suspend=False), KeyState.LIVE, id="runs"),
        pytest.param(refused(), KeyState.REFUSED, id="refused"),
        pytest.param(job(verdict=REFUSAL), KeyState.REFUSED, id="refused as invalid"),
        pytest.param(refused(amended=True), KeyState.LIVE, id="refused, and amended since"),
        pytest.param(refused(suspend=False), KeyState.LIVE, id="refused, and started by hand"),
        pytest.param(with_condition("FailureTarget"), KeyState.LIVE, id="about to fail"),
        pytest.param(with_condition("Failed"), KeyState.FAILED, id="failed"),
        pytest.param(with_condition("Complete"), KeyState.FINISHED, id="finished"),
    ],
)
def test_the_state_of_an_attempt_is_read_from_its_job(made: Json, want: KeyState) -> None:
    assert state_of(made) is want


def test_of_two_jobs_of_one_number_the_later_answers_for_its_key() -> None:
    """As earlier releases made them."""
    first = with_condition("Failed")
    second = with_condition("Complete")
    second["metadata"] |= {"name": "job-a2", "creationTimestamp": "2026-11-21T09:00:00Z"}

    answer = answer_key(job(), [first, second], lambda _: NO_REPORT)

    assert (answer.job, answer.is_new) == (second, False)


def test_an_attempt_waits_for_the_workers_of_the_one_that_it_replaces() -> None:
    cache = ClusterCache(Nothing(), lambda: None)  # type: ignore[arg-type]
    snapshot = Snapshot(cache, lambda _: NO_REPORT, fit_within_s=60.0)
    cache.put_object("jobs", job(training='{"name": "job", "uid": "first", "epochs": 5}'))
    before = pod(0, node="a", leaving=True)
    before["metadata"]["ownerReferences"][0]["uid"] = "cancelled"

    def leaving() -> int:
        with cache.take_dirty() as (touched, nodes):
            (row,) = snapshot.take_state(touched, nodes=nodes, now=0.0, cycle=1).jobs
        return row.terminating_workers

    cache.put_object("pods", before)
    while_it_stops = leaving()
    cache.drop_object("pods", f"default/{before['metadata']['name']}")

    assert (while_it_stops, leaving()) == (1, 0)


def test_a_key_goes_on_from_its_cancelled_job_also_after_a_restart(tmp_path: Path) -> None:
    world, known = MemoryWorld(4), []
    with staged(tmp_path, world) as stage:
        first = stage.submit("a", deadline="1h", key="k")
        cancelled = stage.http.delete("/v1/jobs/default/a").json()
        stage.until("default/a", lambda view: view["state"] == "cancelled", "cancelled")
    with staged(tmp_path, world) as stage:
        for name, key in (("b", "k"), ("c", "another"), ("d", "")):
            stage.submit(name, deadline="1h", key=key)
            known.append(world.known_cancelled)

    (kept,), *others = known
    container = kept["spec"]["template"]["spec"]["containers"][0]
    assert (kept["metadata"]["uid"], others) == (first["uid"], [[], []])
    assert (container["image"], "env" in container, "status" in kept) == ("train:1", False, False)
    assert "cancelled" not in cancelled
