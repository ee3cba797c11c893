"""The commands of docs/kubernetes/install.md, as they stand there, lead to a promised Job.

The image is what a registry holds, so the service runs beside the cluster here, by the account, the
rights and the policies that the file brings.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import WHY_NOT
from tests.support.kubernetes.service import Service
from tests.support.processes import run_command

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ROOT / "docs" / "kubernetes"
DIGEST: Final = f"sha256:{'0' * 64}"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Cluster]:
    """A control plane with one GPU node, and nothing of laxity."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    if not (assets / "kube-apiserver").exists():
        pytest.skip(WHY_NOT)
    made = Cluster(assets, tmp_path / "cluster")
    try:
        made.up()
        made.add_nodes(1, gpus=1)
        yield made
    finally:
        made.down()


def test_three_commands_of_the_page_lead_to_a_promised_job(empty: Cluster, tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(block("first-job.md", "yaml", "# A first promised Job"))
    make, *three = block("install.md", "sh", "## The short way").splitlines()
    wait = block("first-job.md", "sh", "# A first promised Job").splitlines()[-1]

    run(empty, tmp_path, f"cd {ROOT} && {make.replace('sha256:...', DIGEST)}")
    (tmp_path / "dist").symlink_to(ROOT / "dist")
    applied, bound, asked = (run(empty, tmp_path, command) for command in three)
    with Service(empty, tmp_path).running():
        promised = run(empty, tmp_path, f"{wait} --timeout=60s")

    assert "deployment.apps/laxity created" in applied
    assert "rolebinding.rbac.authorization.k8s.io/laxity created" in bound
    assert "job.batch/first created" in asked
    assert "job.batch/first condition met" in promised


def block(page: str, language: str, heading: str) -> str:
    """The first block of code in this language below a heading of the page."""
    _, _, section = (PAGES / page).read_text(encoding="utf-8").partition(f"{heading}\n")
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"{page} has no {language} below {heading!r}"
    return found[1]


def run(cluster: Cluster, folder: Path, command: str) -> str:
    """What a command of the page prints in a shell of whoever administers the cluster."""
    path = f"{cluster.binaries}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    done = run_command("bash", "-euc", command, env=env, cwd=folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
