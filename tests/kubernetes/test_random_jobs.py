"""Random Jobs that the API server accepts end as Kubernetes ends them alone, or are refused in words."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from laxity import names
from tests.support.kubernetes.as_written import changed, is_elastic
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.history import History, annotations, given_twice, labels
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.namespace_jobs import GPUS
from tests.support.kubernetes.place import MANIFESTS
from tests.support.kubernetes.random_jobs import (
    FULL,
    URGENT,
    Drawn,
    draw,
    is_offered,
    twin_of,
)
from tests.support.kubernetes.refusals import invalid_words, is_too_large, wrong_reason
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import training_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SEED: Final = 25
Json = dict[str, Any]
PODS_WITHIN_S: Final = 15.0
TOO_LONG: Final = "metadata.annotations: Too long"


class Exam:
    """Random Jobs on a cluster, each beside its twin without laxity."""

    def __init__(self, cluster: Cluster, namespace: str, jobs: int) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.history = History(cluster, namespace)
        self.drawn: list[Drawn] = []
        self.written: dict[str, Json] = {}  # as the API server took it, with its defaults
        number = 0
        while len(self.drawn) < jobs:
            drawn, number = draw(SEED, number, namespace), number + 1
            taken = self._create(drawn.job)
            if taken is not None:
                self.written[drawn.name] = taken
                assert self._create(drawn.twin()) is not None, drawn.twin()
                self.drawn.append(drawn)

    def _create(self, job: Json) -> Json | None:
        where = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        made: Json | None = self.cluster.ask("POST", where, job)
        return made

    def unsettled(self) -> list[str]:
        latest = self.history.latest
        return [
            one.name
            for one in self.drawn
            if not is_settled(one, latest.get(one.name, {}), latest.get(twin_of(one.name), {}))
        ]

    def events(self) -> dict[str, list[Json]]:
        """Events of laxity by the name of their Job."""
        where = f"/api/v1/namespaces/{self.namespace}/events"
        found: dict[str, list[Json]] = {}
        for event in self.cluster.ask("GET", where)["items"]:
            if event["source"].get("component") == "laxity":
                found.setdefault(event["involvedObject"]["name"], []).append(event)
        return found

    def problems(self) -> list[str]:
        latest, events = self.history.latest, self.events()
        found = given_twice(self.history, GPUS)
        for one in self.drawn:
            job, twin = latest[one.name], latest[twin_of(one.name)]
            if job["spec"].get("completions") == 0:  # Kubernetes ends it at once
                continue
            told = [*changed(self.written[one.name], job), *wrong_end(one, job, twin)]
            told += silent(one, job, events.get(one.name, []))
            found += [f"{one.name}: {problem}" for problem in told]
        return found


def never_runs(job: Json) -> bool:
    """Whether no pod of it can ever run on this cluster."""
    pod = job["spec"]["template"]["spec"]
    return bool(
        (job["spec"].get("parallelism") == 0 and job["spec"].get("completions") != 0)
        or "schedulingGates" in pod
        or pod.get("schedulerName") == "nobody"
        or pod.get("nodeSelector") == {"zone": "nowhere"}
        or job["spec"].get("managedBy") == "example.com/other"
        or not is_offered(pod)
        or is_too_large(job)
    )


def is_settled(one: Drawn, job: Json, twin: Json) -> bool:
    if end(job)[0] or is_refused(job) or is_full(job):
        return bool(end(twin)[0]) or never_runs(one.job)
    return never_runs(one.job) and bool(job) and bool(why(job))


def end(job: Json) -> tuple[str, str]:
    """How it ended, and why; two empty strings if it has not."""
    for one in job.get("status", {}).get("conditions") or ():
        if one["type"] in ("Complete", "Failed") and one["status"] == "True":
            return one["type"], one.get("reason", "")
    return "", ""


def is_refused(job: Json) -> bool:
    return bool(job) and labels(job).get(names.VERDICT_LABEL) == "refused"


def wrong_end(one: Drawn, job: Json, twin: Json) -> list[str]:
    """How the Job's end differs from what was written, and from its twin's."""
    if is_refused(job):
        return wrong_refusal(one, job)
    if is_full(job) and not end(job)[0]:
        return []  # `silent` looks at what it is told
    wrong = invalid_words(one.job, one.wrong)
    if wrong:
        return [f"nobody minds its {', '.join(sorted(wrong))}"]
    if never_runs(one.job) and why(job) and not end(job)[0]:
        return []
    if end(job) != end(twin):
        return [f"it ended {end(job)}, its twin {end(twin)}: {why(job)}"]
    if end(job)[0] != "Complete" or "successPolicy" in job["spec"]:
        return []
    mine, its = job["status"], twin["status"]
    fields = ("succeeded", "completedIndexes", "failedIndexes")
    if is_elastic(one.job):
        done = mine.get("succeeded") == job["spec"]["parallelism"]
        return [] if done else [f"{mine.get('succeeded')} of {job['spec']['parallelism']} are done"]
    return [
        f"{field} is {mine.get(field)}, its twin's {its.get(field)}"
        for field in fields
        if mine.get(field) != its.get(field)
    ]


def wrong_refusal(one: Drawn, job: Json) -> list[str]:
    verdict = json.loads(annotations(job).get(names.VERDICT, "{}"))
    code, said = verdict.get("reason", {}).get("code", ""), why(job)
    runs = not job["spec"]["suspend"] and job["spec"]["parallelism"]
    found = ["it is refused and runs"] if runs else []
    if is_full(job) and TOO_LONG in said:
        return found
    return found + wrong_reason(one.job, one.wrong, code, said)


def is_full(job: Json) -> bool:
    """Whether its annotations leave no room for another: only Events can tell of it."""
    return bool(job) and any(len(text) == len(FULL) for text in annotations(job).values())


def why(job: Json) -> str:
    return annotations(job).get(names.REASON, "")


def silent(one: Drawn, job: Json, events: Sequence[Json]) -> list[str]:
    if is_full(job) and not end(job)[0]:
        told = "; ".join(event["message"] for event in events)
        named = invalid_words(one.job, one.wrong).values()
        is_named = bool(named) and all(words in told for words in named)
        is_told = TOO_LONG in told or is_named or (bool(told) and never_runs(one.job))
        return [] if is_told else [f"it is not told why it does not run: {told}"]
    found = [] if why(job) or end(job)[0] else ["it has no reason"]
    if not events:
        found.append("there is no Event")
    elif is_refused(job) and not any(one["type"] == "Warning" for one in events):
        found.append(f"no Warning among {[one['reason'] for one in events]}")
    return found


@pytest.fixture
def suspends(cluster: Cluster) -> Iterator[None]:
    """The policy by which labelled Jobs start suspended, whatever their manifest says, acts."""
    manifest = str(MANIFESTS / "mutating-v1beta1" / "suspend.yaml")
    kubectl(cluster, "apply", "-f", manifest)
    probe = json.dumps(training_job("default", "probe", {}, suspend=False))
    create = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    cluster.until(
        lambda: json.loads(kubectl(cluster, *create, text=probe))["spec"]["suspend"] is True,
        60.0, "the policy to act",
    )  # fmt: skip
    yield
    kubectl(cluster, "delete", "-f", manifest)


@contextmanager
def urgent(cluster: Cluster) -> Iterator[None]:
    where = "/apis/scheduling.k8s.io/v1/priorityclasses"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    assert cluster.ask("POST", where, {**kind, "metadata": {"name": URGENT}, "value": 1000})
    yield
    cluster.ask("DELETE", f"{where}/{URGENT}")


@pytest.fixture
def replica(
    account: None, cluster: Cluster, service_forker: ServiceForker, tmp_path: Path
) -> Iterator[Replica]:
    folder = tmp_path / "service"
    with Replica(cluster, service_forker, folder, pods_within_s=PODS_WITHIN_S) as made:
        yield made


@pytest.mark.usefixtures("suspends")
@pytest.mark.parametrize(
    ("jobs", "limit_s"),
    [
        pytest.param(60, 100.0, id="60", marks=pytest.mark.timeout(240)),
        pytest.param(550, 900.0, id="550", marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_random_jobs_end_as_written_or_are_refused_in_words(
    cluster: Cluster, replica: Replica, namespace: str, jobs: int, limit_s: float
) -> None:
    with urgent(cluster):
        exam = Exam(cluster, namespace, jobs)
        try:
            cluster.until(lambda: not exam.unsettled(), limit_s, "all Jobs to settle")
            problems = exam.problems()
        finally:
            exam.history.close()
    assert not problems, "\n".join(problems)
