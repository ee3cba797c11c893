"""Random Jobs are read as they are written or refused in words, and a start changes only what is laxity's.

What becomes of them on a real API server is in tests/kubernetes/test_random_jobs.py.
"""

from typing import Final

from laxity import json_tree
from laxity_k8s.act.patches import job_patch
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.conditions import read_condition
from laxity_k8s.objects.jobs import BadJob
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from tests.support.kubernetes.as_written import changed, is_elastic, most_at_once
from tests.support.kubernetes.random_jobs import Drawn, draw
from tests.support.kubernetes.refusals import invalid_words, wrong_reason
from tests.support.manifests import CREATED

SEED: Final = 25
JOBS: Final = 550


def stored(drawn: Drawn) -> Json:
    """The Job as an API server stores it, with the defaults that matter here."""
    job = json_tree.merge_patch(drawn.job, {"metadata": {"creationTimestamp": CREATED, "uid": "u"}})
    job["metadata"]["resourceVersion"] = "7"
    spec: Json = {"completionMode": "NonIndexed", "parallelism": 1, **job["spec"], "suspend": True}
    if spec["parallelism"] == 1 and "parallelism" not in drawn.job["spec"]:
        spec.setdefault("completions", 1)
    return {**job, "spec": spec, "status": {}}


def is_accepted(spec: Json) -> bool:
    """Whether an API server takes a Job of this shape."""
    return spec.get("completionMode") != "Indexed" or "completions" in spec


def started(job: Json, row: Job) -> Json:
    """The Job after it was started at its least width."""
    nodes = tuple(f"node-{number}" for number in range(row.widths[0]))
    admit = Admit(row.id, row.widths[0], nodes, reason("due_first", slack_s=1.0, workers=1))
    patch = job_patch(job, row, [admit], now=0.0, kept_off=("far",), token="worker")
    assert patch is not None
    found: Json = json_tree.merge_patch(job, patch.patch.body)
    assert read_condition(found, "Suspended") == ""
    return found


def misread(drawn: Drawn) -> list[str]:
    job = stored(drawn)
    row = jobs.job_row(job, now=1e10)
    if isinstance(row, BadJob):
        return wrong_reason(
            drawn.job, drawn.wrong, row.refusal.reason.code, "; ".join(row.problems)
        )
    if wrong := invalid_words(drawn.job, drawn.wrong):
        return [f"nobody minds {', '.join(wrong)}"]
    if not is_elastic(job) and row.widths != (most_at_once(job["spec"]),):
        return [f"it is written for {most_at_once(job['spec'])} workers and read as {row.widths}"]
    return changed(job, started(job, row))


def test_random_jobs_are_read_as_written_or_refused_in_words() -> None:
    drawn = [draw(SEED, number, "default") for number in range(JOBS)]
    found = {job.name: misread(job) for job in drawn if is_accepted(job.job["spec"])}
    assert len(found) > JOBS / 2
    assert {name: problems for name, problems in found.items() if problems} == {}
