"""Scripts in containers without laxity, as docs/scripts.md has them: they post with curl, on a real node."""

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from laxity import names
from laxity.api.job_view import JobView
from laxity.instants import format_instant
from tests.support.kubernetes.documented import Json, laid_out
from tests.support.kubernetes.podground import GPUS, SLACK_S, PodGround

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
CURL = ROOT / "flows/examples/frameworks/train.sh"


def test_script_that_posts_with_curl_is_promised_makes_room_and_goes_on(
    ground: PodGround, place: str
) -> None:
    folder = laid_out(ground, place)
    first = script_job(ground, place, "first", f"bash {CURL} 8", model="curl")
    submit(ground, first, {names.CLASS: "soft", names.DEADLINE: "10m"})
    assert ended(ground, place, "first").epochs_done == 100
    patient = script_job(ground, place, "patient", f"bash {CURL} 120 --resume")
    submit(ground, patient, {names.CLASS: "best_effort", names.RESUMES: "true"})
    ground.until(lambda: ground.client.job(f"{place}/patient").epochs_done >= 20, "a fifth of it")

    urgent = script_job(ground, place, "urgent", f"bash {CURL} 8", model="curl")
    told = ground.client.whatif(urgent | annotated(urgent, {names.DEADLINE: "30m"}))
    assert told["verdict"] == "promised", told
    at = datetime.fromtimestamp(told["p90_at"] + SLACK_S, UTC)
    submit(ground, urgent, {names.DEADLINE: format_instant(at)})

    promised = ended(ground, place, "urgent")
    assert (promised.verdict, promised.epochs, promised.epochs_done) == ("promised", 100, 100)
    assert promised.finished_at is not None
    assert promised.finished_at <= at.timestamp()
    resumed = ended(ground, place, "patient")
    assert (resumed.preemptions, resumed.epochs_done) == (1, 100)
    assert not resumed.finished_early
    assert int((folder / "state").read_text()) >= 24, "it went on from where it was stopped"


def test_script_that_posts_nothing_is_predicted_by_its_run_time(
    ground: PodGround, place: str
) -> None:
    laid_out(ground, place)
    for name, service_class in (("quiet", "soft"), ("again", "hard")):
        job = script_job(ground, place, name, "sleep 4", model="quiet")
        submit(ground, job, {names.CLASS: service_class, names.DEADLINE: "10m"})
        view = ended(ground, place, name)
        assert (view.epochs, view.epochs_done, view.finished_early) == (1, 1, False)
    assert view.verdict == "promised"


def script_job(
    ground: PodGround, place: str, name: str, command: str, *, model: str | None = None
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
    template = ground.template()
    pod |= {key: template[key] for key in ("hostNetwork", "nodeSelector", "volumes")}
    container |= {key: template[key] for key in ("image", "imagePullPolicy", "volumeMounts")}
    container |= {
        "command": shlex.split(command),
        "workingDir": str(ground.folder / place),
        "env": [{"name": "PATH", "value": ground.host.path}],
        "resources": template["resources"] | {"limits": {"nvidia.com/gpu": str(GPUS)}},
    }
    return job


def annotated(job: Json, notes: dict[str, str]) -> Json:
    metadata = job["metadata"]
    return {"metadata": metadata | {"annotations": metadata["annotations"] | notes}}


def submit(ground: PodGround, job: Json, notes: dict[str, str]) -> None:
    ground.client.submit(job | annotated(job, notes))


def ended(ground: PodGround, place: str, name: str) -> JobView:
    """Its view, once it has finished."""

    def is_over() -> bool:
        view = ground.client.job(f"{place}/{name}")
        assert view.state not in {"failed", "refused", "cancelled"}, (view.error, view.reason)
        return view.state == "finished"

    ground.until(is_over, f"the end of {name}; logs in {ground.folder}")
    return ground.client.job(f"{place}/{name}")
