"""The attempts under one key on a real API server: replaced by name, and never begun anew unasked."""

from collections.abc import Iterator

import pytest

from laxity import json_tree, names
from laxity_k8s.cluster_api import Json
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_k8s.objects.attempts import attempt_number, origin_of
from laxity_scheduler.live import DuplicateJobError
from tests.support.key_walk import KeyWalk
from tests.support.kubernetes.cluster import Cluster
from tests.support.waiting import Eyes

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def walk(cluster: Cluster, namespace: str) -> Iterator[KeyWalk]:
    api = KubernetesApi(cluster.kubeconfig)
    with Eyes(api) as eyes:
        yield KeyWalk(api, eyes, namespace)
    api.close()


def line(job: Json) -> tuple[str, int, str, int]:
    """Name, attempt, the Job whose folder it trains in, epochs that it begins after."""
    began = origin_of(job)
    return job["metadata"]["name"], attempt_number(job), began.name, began.epochs


def test_a_key_keeps_its_training_over_refusals_and_failures(walk: KeyWalk) -> None:
    asked = [walk.submit()]
    walk.refuse(asked[-1])
    asked.append(walk.submit())
    walk.start(asked[-1])
    walk.train(asked[-1], 5)
    walk.fail(asked[-1])
    for deadline in ("1h", "1h", "2h"):
        asked.append(walk.submit(deadline=deadline))
        walk.refuse(asked[-1])
    walk.amend(asked[-1])
    attached = walk.submit(deadline="2h")
    walk.cancel(asked[-1])
    with pytest.raises(DuplicateJobError, match="epochs: 8 there, 9 asked for"):
        walk.submit(deadline="2h", epochs=9)
    asked.append(walk.submit(deadline="2h", name="renamed"))
    walk.start(asked[-1])
    walk.train(asked[-1], 8)
    walk.finish(asked[-1])
    finished = walk.submit(deadline="3h")

    first, second = ("train", 1, "train", 0), ("train-a2", 2, "train", 5)
    assert [line(job) for job in asked] == [first] * 2 + [second] * 4
    assert json_tree.uid_of(attached) == json_tree.uid_of(asked[-2])
    assert json_tree.uid_of(finished) == json_tree.uid_of(asked[-1])
    times = {json_tree.annotations_of(job)[names.SUBMITTED_AT] for job in asked}
    env = json_tree.get_in(finished, "spec", "template", "spec", "containers", 0, "env")
    assert len(times) == 1
    assert {"name": names.ENV_TRAINING, "value": json_tree.uid_of(asked[1])} in env
    assert [line(job)[0] for job in walk.jobs()] == ["train", "train-a2"]


def test_a_job_that_is_being_deleted_gives_its_name_free_first(walk: KeyWalk) -> None:
    job = walk.submit()
    job_id = json_tree.object_id(job)
    held = {"metadata": {"finalizers": ["test.laxity/held"]}}
    walk.patch(job_id, held)
    walk.cancel(job)

    with pytest.raises(DuplicateJobError, match="is being deleted: submit again when it is gone"):
        walk.submit()
    walk.patch(job_id, {"metadata": {"finalizers": None}})
    again = walk.submit()

    assert json_tree.uid_of(again) != json_tree.uid_of(job)
