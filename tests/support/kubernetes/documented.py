"""The Job of the documentation, on the machine that runs the tests."""

import re
from pathlib import Path
from typing import Any

import yaml

from laxity import names
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.pod_cluster import PodCluster
from tests.support.kubernetes.realnode import IMAGE

ROOT = Path(__file__).parents[3]


EPOCHS = 90  # as docs/manifest.md says


TRAIN = """
import sys

sys.path.append({root!r})
from tests.support.programs.podtrainings import paced


def resnet(training):
    return paced(training, {folder!r})
"""


Json = dict[str, Any]


def laid_out(pod_cluster: PodCluster, place: str) -> Path:
    """The folder with what is trained, beside the secret that tells workers where the service is."""
    folder = pod_cluster.folder / place
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN.format(folder=str(folder), root=str(ROOT)))
    (folder / "pace").write_text("0")
    url = f"--from-literal={names.ENV_URL}={pod_cluster.url}"
    kubectl(pod_cluster.cluster, "-n", place, "create", "secret", "generic", "laxity-worker", url)
    return folder


def documented_job() -> Json:
    """The YAML of the section on kubectl, as it stands there."""
    text = (ROOT / "docs/manifest.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## With kubectl alone")
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found
    job: Json = yaml.safe_load(found[1])
    assert job["metadata"]["annotations"][names.EPOCHS] == str(EPOCHS)
    return job


def at_home(job: Json, pod_cluster: PodCluster, folder: Path, place: str) -> Json:
    """With the image, volumes and namespace of this cluster, which a reader too would fill in."""
    job["metadata"]["namespace"] = place
    pod = job["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    template = pod_cluster.template()
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
    container["env"].append({"name": "PATH", "value": pod_cluster.host.path})
    container["workingDir"] = str(folder)
    assert container["image"] == IMAGE
    return job
