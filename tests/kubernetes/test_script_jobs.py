"""Scripts in containers without laxity, as docs/scripts.md has them: they post with curl, on a real node."""

import re
import shlex
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from laxity import deadline_script, names
from laxity.api.job_view import JobView
from laxity.instants import format_instant
from tests.support.accelerated import ACCELERATE, assert_one_model, seen_alone
from tests.support.kubernetes.documented import Json, laid_out
from tests.support.kubernetes.pod_cluster import GPUS, SLACK_S, PodCluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
CURL = ROOT / "flows/examples/frameworks/train.sh"
SHARE = 0.6  # of what a training has left: less than its end, more than a stop takes
TRAINER = ROOT / "flows/examples/frameworks/transformers_script.py"


def test_script_that_posts_with_curl_is_promised_makes_room_and_goes_on(
    pod_cluster: PodCluster, place: str
) -> None:
    folder = laid_out(pod_cluster, place)
    first = script_job(pod_cluster, place, "first", f"bash {CURL} 8", model="curl")
    submit(pod_cluster, first, {names.CLASS: "soft", names.DEADLINE: "10m"})
    assert ended(pod_cluster, place, "first").epochs_done == 100
    patient = script_job(pod_cluster, place, "patient", f"bash {CURL} 120 --resume")
    submit(pod_cluster, patient, {names.CLASS: "best_effort", names.RESUMES: "true"})
    pod_cluster.until(
        lambda: pod_cluster.client.job(f"{place}/patient").epochs_done >= 20, "a fifth of it"
    )

    urgent = script_job(pod_cluster, place, "urgent", f"bash {CURL} 8", model="curl")
    told = pod_cluster.client.whatif(urgent | annotated(urgent, {names.DEADLINE: "30m"}))
    assert told["verdict"] == "promised", told
    at = datetime.fromtimestamp(told["p90_at"] + SLACK_S, UTC)
    submit(pod_cluster, urgent, {names.DEADLINE: format_instant(at)})

    promised = ended(pod_cluster, place, "urgent")
    assert (promised.verdict, promised.epochs, promised.epochs_done) == ("promised", 100, 100)
    assert promised.finished_at is not None
    assert promised.finished_at <= at.timestamp()
    resumed = ended(pod_cluster, place, "patient")
    assert (resumed.preemptions, resumed.epochs_done) == (1, 100)
    assert not resumed.finished_early
    assert int((folder / "state").read_text()) >= 24, "it went on from where it was stopped"


def test_script_that_posts_nothing_is_predicted_by_its_run_time(
    pod_cluster: PodCluster, place: str
) -> None:
    laid_out(pod_cluster, place)
    for name, service_class in (("quiet", "soft"), ("again", "hard")):
        job = script_job(pod_cluster, place, name, "sleep 4", model="quiet")
        submit(pod_cluster, job, {names.CLASS: service_class, names.DEADLINE: "10m"})
        view = ended(pod_cluster, place, name)
        assert (view.epochs, view.epochs_done, view.finished_early) == (1, 1, False)
    assert view.verdict == "promised"


def test_transformers_script_is_promised_after_one_run_and_goes_on_after_a_stop(
    pod_cluster: PodCluster, place: str
) -> None:
    if find_spec("torch") is None or find_spec("transformers") is None:
        pytest.skip("PyTorch or Transformers is not installed")
    folder = laid_out(pod_cluster, place)

    def trained(name: str, **said: str) -> None:
        words = ["python", str(TRAINER), "--max_steps", "12000", "--output_dir", f"out-{name}"]
        command = shlex.join([*words, "--resume_from_checkpoint", f"out-{name}"])
        job = script_job(pod_cluster, place, name, command, model="gpt")
        notes = {f"laxity.dev/{key}": value for key, value in said.items()}
        submit(pod_cluster, job, {names.RESUMES: "true", **notes})

    urgent = script_job(pod_cluster, place, "urgent", f"bash {CURL} 8")
    estimate = {names.EPOCH_ESTIMATE: "4s"}
    trained("alone", **{"class": "soft", "deadline": "20m"})
    assert ended(pod_cluster, place, "alone").epochs_done == 100
    told = pod_cluster.client.whatif(
        urgent | annotated(urgent, {**estimate, names.DEADLINE: "30m"})
    )
    assert told["verdict"] == "promised", told
    needs_s = told["p90_at"] - time.time()  # while nothing else is there
    trained("stopped", deadline="20m")
    pod_cluster.until(
        lambda: pod_cluster.client.job(f"{place}/stopped").epochs_done >= 20, "a fifth of it"
    )
    rest_s = (pod_cluster.client.job(f"{place}/stopped").p50_at or 0.0) - time.time()
    at = datetime.fromtimestamp(time.time() + needs_s + SHARE * rest_s, UTC)  # it cannot wait
    submit(pod_cluster, urgent, {**estimate, names.DEADLINE: format_instant(at)})

    promised, stopped = ended(pod_cluster, place, "urgent"), ended(pod_cluster, place, "stopped")
    assert (promised.verdict, promised.kept) == ("promised", True)
    assert (stopped.verdict, stopped.kept, stopped.preemptions) == ("promised", True, 1)
    assert (stopped.epochs_done, stopped.finished_early) == (100, False)
    weights = [
        (folder / f"out-{name}/model.safetensors").read_bytes() for name in ("alone", "stopped")
    ]
    assert weights[0] == weights[1]


def test_two_workers_of_a_launched_script_train_one_model_as_one_process_does(
    pod_cluster: PodCluster, place: str
) -> None:
    folder = laid_out(pod_cluster, place)
    alone = seen_alone(folder)
    train = deadline_script(
        ["python", str(ACCELERATE), str(folder)],
        name="pair", namespace=place, workers=2, launcher="torch",
        deadline="20m", epoch_estimate="2m", template=pod_cluster.template(),
        env=pod_cluster.env() | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip

    result = train()

    assert result == {"progress_percent": None}
    assert_one_model(alone, folder)


def script_job(
    pod_cluster: PodCluster, place: str, name: str, command: str, *, model: str | None = None
) -> Json:
    """The documented Job, with the image and volumes of this cluster, on all of its GPUs."""
    text = (ROOT / "docs/scripts.md").read_text(encoding="utf-8")
    found = re.search(r"## On Kubernetes.*?```yaml\n(.*?)```", text, re.DOTALL)
    assert found
    job: Json = yaml.safe_load(found[1])
    job["metadata"] |= {
        "name": name,
        "namespace": place,
        "annotations": {names.MODEL: model or name},
    }
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    template = pod_cluster.template()
    pod |= {key: template[key] for key in ("hostNetwork", "nodeSelector", "volumes")}
    container |= {key: template[key] for key in ("image", "imagePullPolicy", "volumeMounts")}
    container |= {
        "command": shlex.split(command),
        "workingDir": str(pod_cluster.folder / place),
        "env": [
            {"name": "PATH", "value": pod_cluster.host.path},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ],
        "resources": template["resources"] | {"limits": {"nvidia.com/gpu": str(GPUS)}},
    }
    return job


def annotated(job: Json, notes: dict[str, str]) -> Json:
    metadata = job["metadata"]
    return {"metadata": metadata | {"annotations": metadata["annotations"] | notes}}


def submit(pod_cluster: PodCluster, job: Json, notes: dict[str, str]) -> None:
    pod_cluster.client.submit(job | annotated(job, notes))


def ended(pod_cluster: PodCluster, place: str, name: str) -> JobView:
    """Its view, once it has finished."""

    def is_over() -> bool:
        view = pod_cluster.client.job(f"{place}/{name}")
        assert view.state not in {"failed", "refused", "cancelled"}, (view.error, view.reason)
        return view.state == "finished"

    pod_cluster.until(is_over, f"the end of {name}; logs in {pod_cluster.folder}")
    return pod_cluster.client.job(f"{place}/{name}")
