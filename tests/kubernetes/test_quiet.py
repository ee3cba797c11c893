"""Waiting is quiet: the API server is told of changes that concern a Job, not of each free GPU."""

import json
import re
import urllib.request
from collections import Counter

import pytest

from tests.support.builders import bearer
from tests.support.kubernetes.place import HARD, Place, complete
from tests.support.kubernetes.service import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

MOST_PATCHES = 5  # of a Job, in its whole life
MOST_EVENTS = 10
BATCH = 50  # of Jobs that one kubectl applies


def patches(there: Place) -> float:
    """Patches that the service has sent, whatever became of them."""
    url = f"http://127.0.0.1:{there.service.port}/metrics"
    request = urllib.request.Request(url, headers=bearer())
    with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310
        text = reply.read().decode()
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
    before = patches(there)
    asked = {**HARD, "epochs": "1", "epoch-estimate": f"{run_s:.0f}s", "deadline": "1h"}
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
