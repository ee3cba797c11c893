"""The kustomization to copy, on a cluster of its own: applied again, upgraded, rolled back."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import MANIFESTS, WHY_NOT
from tests.support.kubernetes.kubectl import kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = "jsonpath={.spec.template.spec.containers[0].image}"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane that nobody else uses."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    if not (assets / "kube-apiserver").exists():
        pytest.skip(WHY_NOT)
    made = Cluster(assets, tmp_path_factory.mktemp("empty"))
    try:
        made.up()
        kubectl(made, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
        yield made
    finally:
        made.down()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The manifests in a folder of one's own."""
    return shutil.copytree(MANIFESTS, tmp_path / "manifests") / "production"


def image(cluster: Cluster) -> str:
    return kubectl(cluster, "-n", "laxity", "get", "deployment", "laxity", "-o", IMAGE)


def settings(cluster: Cluster) -> str:
    """Of the ConfigMap that the pods get."""
    where = "jsonpath={.spec.template.spec.containers[0].envFrom[1].configMapRef.name}"
    name = kubectl(cluster, "-n", "laxity", "get", "deployment", "laxity", "-o", where)
    return kubectl(cluster, "-n", "laxity", "get", "configmap", name, "-o", "jsonpath={.data}")


def apply(cluster: Cluster, folder: Path) -> set[str]:
    """Apply the kustomization; the objects that the API server wrote.

    kubectl says `configured` of some objects that it sends without a change.
    """
    before = revisions(cluster, folder)
    kubectl(cluster, "apply", "-k", str(folder))
    after = revisions(cluster, folder)
    return {name for name, revision in after.items() if before.get(name) != revision}


def revisions(cluster: Cluster, folder: Path) -> dict[str, str]:
    """What is there, by kind and name, but for what controllers write on it."""
    text = kubectl(cluster, "get", "-k", str(folder), "-o", "json", "--ignore-not-found")
    items = json.loads(text)["items"] if text.strip() else []
    for item in items:
        item.pop("status", None)
        item["metadata"].pop("resourceVersion")
        item["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    return {
        f"{item['kind']}/{item['metadata']['name']}": json.dumps(item, sort_keys=True)
        for item in items
    }


def test_applying_again_changes_nothing_and_an_upgrade_keeps_settings(
    empty: Cluster, copied: Path
) -> None:
    assert "Deployment/laxity" in apply(empty, copied)
    assert apply(empty, copied) == set()
    file = copied / "kustomization.yaml"
    file.write_text(file.read_text().replace("LAXITY_POLICY=qos", "LAXITY_POLICY=edf"))
    made = apply(empty, copied)
    assert {name.partition("/")[0] for name in made} == {"ConfigMap", "Deployment"}
    first, settings_before = image(empty), settings(empty)
    assert '"LAXITY_POLICY":"edf"' in settings_before
    old = file.read_text()
    file.write_text(re.sub(r'newTag: "[^"]*"', 'newTag: "9.9.9"', old))
    assert apply(empty, copied) == {"Deployment/laxity"}
    assert image(empty) == f"{first.rpartition(':')[0]}:9.9.9"
    assert settings(empty) == settings_before
    file.write_text(old)  # back
    apply(empty, copied)
    assert image(empty) == first
