"""Several trainings under one deadline, as real pods: a file of Jobs, and a Prefect workflow.

One of three side by side takes twice as long as predicted, and the service is killed meanwhile.
"""

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, Final

import pytest
import yaml

from laxity import Training, deadline_flow, deadline_workflow, names, parallel
from tests.support.builders import TOKEN
from tests.support.job_workers import whole_lines
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.pod_cluster import PATIENCE_S, PodCluster
from tests.support.kubernetes.service import LAXITY
from tests.support.processes import run_command
from tests.support.programs import podtrainings

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

EPOCHS: Final = 6
PACES_S: Final = {"pretrain": 1.0, "en": 1.0, "de": 2.0, "fr": 1.0, "evaluate": 1.0}
AFTER: Final = {"en": "pretrain", "de": "pretrain", "fr": "pretrain", "evaluate": "finetune"}
TUNED: Final = ("en", "de", "fr")
Json = dict[str, Any]


@pytest.mark.parametrize("declared", ["by laxity submit", "by nobody"])
def test_file_of_jobs_is_kept_though_one_is_slow_and_the_service_is_killed(
    pod_cluster: PodCluster, place: str, declared: str
) -> None:
    lay_out(pod_cluster, place)
    jobs = [step_job(pod_cluster, place, name) for name in PACES_S]
    if declared == "by nobody":
        apply(pod_cluster, jobs)
    else:
        run_submit(pod_cluster, place, jobs)
    waits = "it waits for finetune"
    pod_cluster.until(
        lambda: told(pod_cluster, place, "evaluate") == waits, "evaluate to be told to wait"
    )
    assert told(pod_cluster, place, "en") == "it waits for pretrain"
    kill_during_second_step(pod_cluster, place)
    pod_cluster.until(lambda: state(pod_cluster, place) != "active", "the end of the group")
    assert_kept(pod_cluster, place)


def test_prefect_workflow_is_kept_though_one_is_slow_and_the_service_is_killed(
    pod_cluster: PodCluster, place: str
) -> None:
    lay_out(pod_cluster, place)
    pretrain, evaluate = (step_flow(pod_cluster, place, name) for name in ("pretrain", "evaluate"))
    finetune = step_flow(pod_cluster, place, "finetune")

    @deadline_workflow(
        deadline="10m", steps=[pretrain, parallel(finetune, 3), evaluate], namespace=place
    )
    def release() -> None:
        pretrain(folder=str(pod_cluster.folder / place / "pretrain"))
        runs = [finetune.submit(folder=str(pod_cluster.folder / place / name)) for name in TUNED]
        for run in runs:
            run.result()
        evaluate(folder=str(pod_cluster.folder / place / "evaluate"))

    ending: Future[None] = Future()
    work = partial(copy_context().run, run_into, ending, release)
    threading.Thread(target=work, daemon=True).start()
    kill_during_second_step(pod_cluster, place)
    ending.result(timeout=PATIENCE_S)
    assert_kept(pod_cluster, place)


def test_job_of_an_incomplete_group_says_on_itself_what_is_missing(
    pod_cluster: PodCluster, place: str
) -> None:
    lay_out(pod_cluster, place)
    apply(pod_cluster, [step_job(pod_cluster, place, "evaluate")])
    missing = "comes after finetune, which is no step"
    pod_cluster.until(
        lambda: missing in told(pod_cluster, place, "evaluate"), "evaluate to be told"
    )
    events = ["-n", place, "get", "events", "-o", "jsonpath={.items[*].message}"]
    pod_cluster.until(
        lambda: missing in kubectl(pod_cluster.cluster, *events), "an Event that says so"
    )


def apply(pod_cluster: PodCluster, jobs: list[Json]) -> None:
    """As `kubectl apply -f` does: the Jobs themselves name their group and its deadline."""
    for job in jobs:
        job["metadata"]["annotations"] |= {names.GROUP: "release", names.DEADLINE: "10m"}
    kubectl(pod_cluster.cluster, "apply", "-f", "-", text=yaml.safe_dump_all(jobs))


def run_into(ending: "Future[None]", run: Callable[[], Any]) -> None:
    try:
        run()
        ending.set_result(None)
    except BaseException as error:  # noqa: BLE001 - raised where the end is waited for
        ending.set_exception(error)


def lay_out(pod_cluster: PodCluster, place: str) -> None:
    """A folder for each training, which says how long its epochs take."""
    for name, pace_s in PACES_S.items():
        (pod_cluster.folder / place / name).mkdir(parents=True)
        (pod_cluster.folder / place / name / "pace").write_text(str(pace_s))


def step_flow(pod_cluster: PodCluster, place: str, name: str) -> Any:
    def train(training: Training, folder: str) -> Json:
        return podtrainings.paced(training, folder)

    declare: Any = deadline_flow(
        name=name, namespace=place, template=pod_cluster.template(), env=pod_cluster.env(), epochs=EPOCHS,
        epoch_estimate="1s", model=f"{place}-{name}",
        entry=f"{podtrainings.__file__}:paced",
    )  # fmt: skip
    return declare(train)


def step_job(pod_cluster: PodCluster, place: str, name: str) -> Json:
    """The Job of one training, as somebody writes it by hand."""
    spec = step_flow(pod_cluster, place, name).spec(folder=str(pod_cluster.folder / place / name))
    job: Json = json.loads(json.dumps(spec.to_manifest()))
    job["metadata"]["name"] = name
    annotations = job["metadata"]["annotations"]
    for unsaid in (names.DEADLINE, names.CLASS, names.IDEMPOTENCY_KEY):
        annotations.pop(unsaid, None)
    annotations |= {names.AFTER: AFTER[name]} if name in AFTER else {}
    annotations |= {names.STEP: "finetune"} if name in TUNED else {}
    return job


def run_submit(pod_cluster: PodCluster, place: str, jobs: list[Json]) -> None:
    file = pod_cluster.folder / place / "release.yaml"
    file.write_text(yaml.safe_dump_all(jobs), encoding="utf-8")
    done = run_command(
        str(LAXITY),
        "submit",
        str(file),
        "--namespace",
        place,
        "--deadline",
        "10m",
        env=os.environ | {names.ENV_URL: pod_cluster.url, names.ENV_TOKEN: TOKEN},
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def told(pod_cluster: PodCluster, place: str, name: str) -> str:
    """The reason that stands on a Job; "" before there is one."""
    key = names.REASON.replace(".", r"\.")
    return kubectl(
        pod_cluster.cluster, "-n", place, "get", "job", name, "-o",
        f"jsonpath={{.metadata.annotations.{key}}}",
    )  # fmt: skip


def kill_during_second_step(pod_cluster: PodCluster, place: str) -> None:
    """kill -9 while the three train, and start the service again."""
    pod_cluster.until(lambda: len(notes(pod_cluster, place, "de")) >= 2, "the second step to train")
    assert pod_cluster.service is not None
    pod_cluster.service.kill()
    pod_cluster.until(lambda: len(notes(pod_cluster, place, "de")) >= 4, "training to go on")
    pod_cluster.service.start()


def notes(pod_cluster: PodCluster, place: str, name: str) -> list[tuple[int, int]]:
    """(epoch, start) of the epochs that one training has done."""
    lines = whole_lines(pod_cluster.folder / place / name / "notes.jsonl")
    return [(line["epoch"], line["start"]) for line in lines if line["what"] == "trained"]


def state(pod_cluster: PodCluster, place: str) -> str:
    return str(group_of(pod_cluster, place)["state"])


def group_of(pod_cluster: PodCluster, place: str) -> Json:
    (name,) = {job.group for job in pod_cluster.client.jobs(place)}
    group: Json = pod_cluster.client.group(f"{place}/{name}")
    return group


def assert_kept(pod_cluster: PodCluster, place: str) -> None:
    """Promised, ended in time, and each epoch of each training was done once."""
    group = group_of(pod_cluster, place)
    assert (group["state"], group["verdict"]) == ("finished", "promised"), group
    assert group["finished_at"] <= group["deadline_at"]
    assert len(group["jobs"]) == len(PACES_S)
    once = [(epoch, 1) for epoch in range(1, EPOCHS + 1)]
    assert {name: notes(pod_cluster, place, name) for name in PACES_S} == dict.fromkeys(
        PACES_S, once
    )
