"""`laxity release --all` on a cluster: what runs goes on, and nothing else is started."""

import pytest

from laxity import names
from laxity.json_tree import object_id
from laxity_k8s.objects.conditions import is_finished
from laxity_k8s.objects.node_rows.affinity import preferred_nodes
from tests.support.kubernetes.place import HARD, Place, annotations, judged, labels, running
from tests.support.kubernetes.service import Json, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(200)]
WHENEVER = {"epochs": "1000", "epoch-estimate": "10s", "widths": "1"}
NOTHING_REFUSED: Json = {"refused": {}, "nodes_refused": {}}


def release(there: Place) -> Json:
    return dict(there.service.ask("POST", "/v1/release", {}).json())


def unfinished(there: Place) -> dict[str, Json]:
    """All Jobs of laxity in the cluster that have not ended, by id."""
    answer = there.cluster.ask("GET", f"/apis/batch/v1/jobs?labelSelector={names.MANAGED}") or {}
    return {object_id(job): job for job in answer["items"] if not is_finished(job)}


def test_running_jobs_go_on_and_waiting_and_refused_ones_stay_suspended(there: Place) -> None:
    there.apply(*[there.job(f"runs-{number}", WHENEVER) for number in range(16)])
    there.until(lambda: sum(map(running, there.jobs())) == 16, "all GPUs to be taken")
    there.apply(there.job("waits", WHENEVER), there.job("refused", {**HARD, "deadline": "5s"}))
    there.until_job("waits", judged, "is judged")
    refused = there.until_job("refused", judged, "is judged")
    assert verdict_of(refused)["kind"] == "refusal"
    waiting = sorted(f"{there.namespace}/{name}" for name in ("waits", "refused"))
    before = there.pods("runs-3")

    open_jobs = unfinished(there)  # those that earlier tests have left, too
    suspended = sorted(name for name, job in open_jobs.items() if job["spec"].get("suspend"))

    assert release(there) == {"released": len(open_jobs), "suspended": suspended, **NOTHING_REFUSED}

    mine = [name for name in open_jobs if name.startswith(f"{there.namespace}/")]
    assert len(mine) == 18
    assert [name for name in suspended if name in mine] == waiting

    for job in there.jobs():
        assert not set(names.OUTPUTS) & set(annotations(job))
        assert not {names.MANAGED, names.VERDICT_LABEL, names.CLASS_LABEL} & set(labels(job))
        name = job["metadata"]["name"]
        assert job["spec"]["suspend"] is (name in {"waits", "refused"}), name
    assert there.pods("runs-3") == before
    later = there.job("later", {**HARD, "deadline": "5s"})
    there.apply(later)
    there.until_job("later", judged, "is judged, so a cycle has passed")
    assert there.get("waits")["spec"]["suspend"] is True


def test_pods_of_a_job_that_waits_may_go_again_wherever_the_job_lets_them(there: Place) -> None:
    """Its start leaned it to a node; then somebody suspended it."""
    there.apply(there.job("stopped", WHENEVER))
    started = there.until_job("stopped", running, "runs")
    assert preferred_nodes(started["spec"]["template"])
    suspend(there, "stopped", "true")
    there.until(lambda: not there.pods("stopped"), "its pods to be gone")
    there.until_job("stopped", lambda job: names.PIN in annotations(job), "is pinned")

    assert release(there)["refused"] == {}

    template = there.get("stopped")["spec"]["template"]["spec"]
    assert not (template.get("affinity") or {}).get("nodeAffinity")
    suspend(there, "stopped", "false")
    there.until_job("stopped", running, "runs again")


def suspend(there: Place, name: str, value: str) -> None:
    body = f'{{"spec": {{"suspend": {value}}}}}'
    there.kubectl("patch", "job", name, "--type", "merge", "-p", body)
