"""Waiting is quiet: the API server is told of changes that concern a Job, not of each free GPU."""

import json
import re
from collections import Counter

import pytest

from tests.support.kubernetes.place import Place, complete
from tests.support.kubernetes.service import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

MOST_PATCHES = 5  # of a Job, in its whole life
MOST_EVENTS = 10
BATCH = 50  # of Jobs that one kubectl applies


def patches(there: Place) -> float:
    """Patches that the service has sent, whatever became of them."""
    text = there.service.ask("GET", "/metrics").text
    return sum(map(float, re.findall(r"^laxity_patches_total\{.*\} (\S+)$", text, re.MULTILINE)))


def are_complete(there: Place, jobs: list[Json]) -> bool:
    """Drops those that are, from the last on: to list all at each look keeps the API server busy."""
    where = f"/apis/batch/v1/namespaces/{there.namespace}/jobs"
    while jobs and complete(there.cluster.ask("GET", f"{where}/{jobs[-1]['metadata']['name']}")):
        jobs.pop()
    return not jobs


@pytest.mark.parametrize(
    ("jobs", "run_s"),
    [pytest.param(100, 3.0, id="100"), pytest.param(400, 8.0, marks=pytest.mark.soak, id="400")],
)
def test_waiting_jobs_cost_few_patches_and_few_events(
    there: Place, jobs: int, run_s: float
) -> None:
    run_quietly(there, jobs, run_s, {"deadline": "1h"})


def test_jobs_that_wait_for_their_quota_cost_few_patches_and_few_events(there: Place) -> None:
    there.kubectl("create", "quota", "team", "--hard=requests.nvidia.com/gpu=2")
    waits = there.job("waits", {"class": "best_effort", "epochs": "1"})  # in each plan
    container = waits["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"example.com/npu": "1"}}
    there.apply(waits)
    run_quietly(there, 24, 1.0, {"class": "best_effort"})


def run_quietly(there: Place, jobs: int, run_s: float, asked: dict[str, str]) -> None:
    """They all end, with few patches and Events for each."""
    before = patches(there)
    asked = {"epochs": "1", "epoch-estimate": f"{run_s:.0f}s", "widths": "1", **asked}
    made = [there.job(f"many-{number}", asked, run_s=run_s) for number in range(jobs)]
    for first in range(0, jobs, BATCH):
        there.apply(*made[first : first + BATCH])
    there.cluster.until(lambda: are_complete(there, made), 280.0, "all to finish")
    assert sum(map(complete, there.jobs())) == jobs
    written = json.loads(there.kubectl("get", "events", "-o", "json"))["items"]
    ours = [one for one in written if one["source"].get("component") == "laxity"]
    reasons = Counter(one["reason"] for one in ours)
    assert patches(there) - before <= MOST_PATCHES * jobs, reasons
    each = Counter(one["involvedObject"]["name"] for one in ours)
    assert max(each.values()) <= MOST_EVENTS, reasons
    assert min(each.values()) >= 1
