"""A Job that somebody wrote by hand, as the README shows it, trains on a real node."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from laxity import names
from tests.kube.kubectl import kubectl
from tests.kube.podground import PATIENCE_S, PodGround
from tests.kube.podtrainings import weights_after
from tests.kube.realnode import IMAGE
from tests.kube.service import LAXITY

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
EPOCHS = 90  # as the README says
TRAIN = """
from tests.kube.podtrainings import paced


def resnet(training):
    return paced(training, {folder!r})
"""
Json = dict[str, Any]


@pytest.mark.parametrize("how", ["kubectl apply", "laxity submit"])
def test_the_readmes_job_is_promised_and_trains(how: str, ground: PodGround, place: str) -> None:
    folder = ground.folder / place
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN.format(folder=str(folder)))
    (folder / "pace").write_text("0")
    job = at_home(readmes_job(), ground, folder, place)
    url = f"--from-literal={names.ENV_URL}={ground.url}"
    kubectl(ground.cluster, "-n", place, "create", "secret", "generic", "laxity-worker", url)
    if how == "kubectl apply":
        kubectl(ground.cluster, "apply", "-f", "-", text=yaml.safe_dump(job))
    else:
        submitted(ground, untold(job), folder, place)

    ground.until(lambda: state(ground, place) in {"finished", "failed"}, f"its end; see {folder}")

    view = ground.client.job(f"{place}/nightly")
    assert (view.state, view.verdict, view.epochs_done) == ("finished", "promised", EPOCHS)
    assert view.result["weights"] == pytest.approx(weights_after(EPOCHS))
    uid = kubectl(
        ground.cluster, "-n", place, "get", "job", "nightly", "-o", "jsonpath={.metadata.uid}"
    )
    assert [one.name for one in (folder / "checkpoints").iterdir()] == [uid]


def readmes_job() -> Json:
    """The YAML of the section on kubectl, as it stands there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## With kubectl alone")
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found
    job: Json = yaml.safe_load(found[1])
    assert job["metadata"]["annotations"][names.EPOCHS] == str(EPOCHS)
    return job


def at_home(job: Json, ground: PodGround, folder: Path, place: str) -> Json:
    """With the image, volumes and namespace of this cluster, which a reader too would fill in."""
    job["metadata"]["namespace"] = place
    pod = job["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    template = ground.template()
    container |= {"image": template["image"], "imagePullPolicy": template["imagePullPolicy"]}
    container["resources"]["requests"] = template["resources"]["requests"]
    container["volumeMounts"] += template["volumeMounts"]
    del volume["persistentVolumeClaim"]
    volume["hostPath"] = {"path": str(folder / "checkpoints")}
    pod["volumes"] += template["volumes"]
    pod |= {"hostNetwork": True, "nodeSelector": template["nodeSelector"]}
    for row in container["env"]:
        if row["name"] == names.ENV_JOB:
            row["value"] = f"{place}/nightly"
    paths = {"PATH": ground.host.path, "PYTHONPATH": f"{folder}:{ROOT}"}
    container["env"] += [{"name": name, "value": value} for name, value in paths.items()]
    assert container["image"] == IMAGE
    return job


def untold(job: Json) -> Json:
    """Without the lines that `laxity submit` adds by itself."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    del container["envFrom"]
    container["env"] = [row for row in container["env"] if row["name"] in {"PATH", "PYTHONPATH"}]
    return job


def submitted(ground: PodGround, job: Json, folder: Path, place: str) -> None:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    done = subprocess.run(
        [str(LAXITY), "submit", str(file), "--namespace", place],
        env=os.environ | {names.ENV_URL: ground.url},
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def state(ground: PodGround, place: str) -> str:
    found = {job.id: job.state for job in ground.client.jobs(place)}
    return str(found.get(f"{place}/nightly", ""))
