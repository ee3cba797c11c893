"""A Job that somebody wrote by hand, as docs/manifest.md shows it, trains on a real node."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from laxity import names
from tests.support.builders import TOKEN
from tests.support.kubernetes.any_job import job as any_job
from tests.support.kubernetes.documented import EPOCHS, Json, at_home, documented_job, laid_out
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.pod_cluster import MANIFESTS, PATIENCE_S, PodCluster
from tests.support.kubernetes.service import LAXITY
from tests.support.processes import run_command
from tests.support.programs.podtrainings import weights_after

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

POLICIES = [MANIFESTS / "mutating-v1beta1" / f"{name}.yaml" for name in ("environment", "suspend")]


@pytest.mark.parametrize("how", ["kubectl apply", "laxity submit"])
def test_the_documented_job_is_promised_and_trains(
    how: str, pod_cluster: PodCluster, place: str
) -> None:
    folder = laid_out(pod_cluster, place)
    job = at_home(documented_job(), pod_cluster, folder, place)
    if how == "kubectl apply":
        kubectl(pod_cluster.cluster, "apply", "-f", "-", text=yaml.safe_dump(job))
    else:
        submitted(pod_cluster, untold(job), folder, place)

    kept_its_promise(pod_cluster, place, folder)


@pytest.mark.usefixtures("policies")
def test_two_workers_whose_job_says_nothing_of_their_environment_are_told_by_the_policies(
    pod_cluster: PodCluster, place: str
) -> None:
    folder = laid_out(pod_cluster, place)
    job = bare(at_home(documented_job(), pod_cluster, folder, place))
    kubectl(pod_cluster.cluster, "apply", "-f", "-", text=yaml.safe_dump(job))
    kept_its_promise(pod_cluster, place, folder)
    notes = [json.loads(line) for line in (folder / "notes.jsonl").read_text().splitlines()]
    trained = sorted((one["rank"], one["epoch"]) for one in notes if one["what"] == "trained")
    assert trained == [(rank, epoch) for rank in (0, 1) for epoch in range(1, EPOCHS + 1)]
    assert {one["width"] for one in notes} == {2}, "they have found each other"


@pytest.mark.soak  # a minute until a worker counts as one that does not come up
@pytest.mark.usefixtures("policies")
def test_what_its_workers_die_of_is_told_with_exit_code_and_last_line(
    pod_cluster: PodCluster, place: str
) -> None:
    folder = laid_out(pod_cluster, place)
    (folder / "train.py").write_text("import no_such_package\n")
    job = bare(at_home(documented_job(), pod_cluster, folder, place))
    kubectl(pod_cluster.cluster, "apply", "-f", "-", text=yaml.safe_dump(job))
    pod_cluster.until(
        lambda: bool(told(pod_cluster, place)), "an Event that says why it does not train"
    )
    assert re.fullmatch(
        r"only 0 of 2 workers run: worker [01] failed with exit code 1: "
        r"ModuleNotFoundError: No module named 'no_such_package'",
        told(pod_cluster, place),
    )


def told(pod_cluster: PodCluster, place: str) -> str:
    """The Event about workers that fail, as `kubectl describe` shows it; later ones follow."""
    asked = ["-n", place, "get", "events", "--field-selector=involvedObject.kind=Job", "-o", "json"]
    events = json.loads(kubectl(pod_cluster.cluster, *asked))["items"]
    return next((str(one["message"]) for one in events if "workers run" in one["message"]), "")


@pytest.fixture
def policies(pod_cluster: PodCluster) -> Iterator[None]:
    """The mutating ones; enforced some moments after they were created."""
    files = [word for file in POLICIES for word in ("-f", str(file))]
    kubectl(pod_cluster.cluster, "apply", *files)
    pod_cluster.until(lambda: mutates(pod_cluster), "the policies to be enforced")
    yield
    kubectl(pod_cluster.cluster, "delete", *files)


def mutates(pod_cluster: PodCluster) -> bool:
    probe = any_job("probe", annotations={names.EPOCHS: "1"}, suspend=False)
    dry = ["create", "-n", "default", "-f", "-", "--dry-run=server", "-o", "json"]
    made = json.loads(kubectl(pod_cluster.cluster, *dry, text=json.dumps(probe)))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    return made["spec"]["suspend"] is True and {"env", "envFrom"} <= container.keys()


def kept_its_promise(pod_cluster: PodCluster, place: str, folder: Path) -> None:
    """It trains to its end, and the service has heard of each epoch."""
    pod_cluster.until(
        lambda: state(pod_cluster, place) in {"finished", "failed"}, f"its end; see {folder}"
    )
    view = pod_cluster.client.job(f"{place}/nightly")
    assert (view.state, view.verdict, view.epochs_done) == ("finished", "promised", EPOCHS)
    assert view.result["weights"] == pytest.approx(weights_after(EPOCHS))
    uid = kubectl(
        pod_cluster.cluster, "-n", place, "get", "job", "nightly", "-o", "jsonpath={.metadata.uid}"
    )
    assert [one.name for one in (folder / "checkpoints").iterdir()] == [uid]


def untold(job: Json) -> Json:
    """Without the lines that `laxity submit` adds by itself."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    del container["envFrom"]
    container["env"] = [row for row in container["env"] if row["name"] == "PATH"]
    return job


def bare(job: Json) -> Json:
    """Two workers, no word of environment or suspension; one Python is there without a PATH."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    del container["envFrom"], container["env"], job["spec"]["suspend"]
    container["command"][0] = sys.executable
    job["spec"] |= {"parallelism": 2, "completions": 2}
    job["metadata"]["annotations"][names.WIDTHS] = "2"
    return job


def submitted(pod_cluster: PodCluster, job: Json, folder: Path, place: str) -> None:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    done = run_command(
        str(LAXITY),
        "submit",
        str(file),
        "--namespace",
        place,
        env=os.environ | {names.ENV_URL: pod_cluster.url, names.ENV_TOKEN: TOKEN},
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def state(pod_cluster: PodCluster, place: str) -> str:
    found = {job.id: job.state for job in pod_cluster.client.jobs(place)}
    return str(found.get(f"{place}/nightly", ""))
