"""`kubectl laxity`, packed as for krew and found by kubectl on PATH, with a tenant's rights."""

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.support.builders import TOKEN
from tests.support.kubernetes.kubectl import kubectl, tried
from tests.support.kubernetes.place import HARD, Place, judged
from tests.support.processes import run_command

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]
PACK = Path(__file__).parents[2] / "k8s/krew/pack.py"
ADDRESS = "https://releases.example/kubectl-laxity.tar.gz"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that krew would unpack the archive into."""
    folder = tmp_path_factory.mktemp("krew")
    subprocess.run([sys.executable, PACK, folder, ADDRESS], check=True)
    with tarfile.open(folder / "kubectl-laxity.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def laxity(there: Place, plugin: Path, *words: str, **env: str) -> tuple[int, str]:
    command = [str(there.cluster.binaries / "kubectl"), "laxity", *words, "-n", there.namespace]
    path = f"{plugin}:{there.cluster.binaries}:{os.environ['PATH']}"
    given = {"PATH": path, "KUBECONFIG": str(there.cluster.kubeconfig), "HOME": str(plugin), **env}
    done = run_command(*command, env=given, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_kubectl_laxity_gets_explains_and_offers_without_the_service(
    there: Place, plugin: Path
) -> None:
    there.apply(there.job("late", HARD))  # another Job has the name before
    there.until(lambda: bool(there.events("late")), "an Event about it")
    there.kubectl("delete", "job", "late", "--wait")
    there.apply(there.job("kept", HARD), there.job("late", {**HARD, "epoch-estimate": "1h"}))
    for name in ("kept", "late"):
        there.until_job(name, judged, "has a verdict")
    there.until(lambda: "offered" in str(there.events("late")).lower(), "Events about it")
    _, shown = laxity(there, plugin, "get")
    rows = {line.split()[0]: line.split()[1] for line in shown.splitlines()[1:]}
    assert rows == {"kept": "promised", "late": "refused"}
    header = shown.splitlines()[0].split()
    late = next(line.split() for line in shown.splitlines() if line.startswith("late"))
    assert late[header.index("DEADLINE")] == HARD["deadline"]
    assert late[header.index("PROMISED")] == "<none>"
    _, why = laxity(there, plugin, "explain", "late")
    assert "verdict:    refused" in why
    assert "after the deadline" in why
    assert "Offered" in why
    assert "Fits" not in why, "that was the other one"
    _, offered = laxity(there, plugin, "offers", "late")
    command = offered.splitlines()[0].split()
    assert command[:2] == ["kubectl", "-n"]
    kubectl(there.cluster, *command[1:])
    there.until_job(
        "late", lambda job: "promised" in str(job["metadata"]["labels"]), "takes the offer"
    )
    code, missing = laxity(there, plugin, "explain", "none")
    assert (code, "not found" in missing) == (1, True)


def test_a_job_without_a_verdict_is_told_what_may_be_missing(there: Place, plugin: Path) -> None:
    waits = there.job("waits", HARD)
    waits["metadata"]["labels"] = {}  # laxity does not look at it
    there.apply(waits)
    _, shown = laxity(there, plugin, "get", "waits")
    assert "kubectl laxity explain NAME" in shown
    _, why = laxity(there, plugin, "explain", "waits")
    assert f"kubectl -n {there.namespace} create rolebinding laxity" in why


def test_a_refused_deadline_is_explained_beside_the_promise(there: Place, plugin: Path) -> None:
    there.apply(there.job("both", HARD))
    there.until_job("both", judged, "has a verdict")
    there.kubectl("annotate", "job", "both", "--overwrite", "laxity.dev/deadline=1s")
    there.until_job("both", lambda job: "refused-deadline" in str(job), "is refused the new one")
    _, why = laxity(there, plugin, "explain", "both")
    assert "verdict:    promised" in why
    assert "asked again: " in why.split("refused:")[1].splitlines()[0]


def test_a_pinned_job_without_a_verdict_is_said_to_be_pinned(there: Place, plugin: Path) -> None:
    there.apply(there.job("pinned", {**HARD, "pin": "kept by hand"}))
    _, why = laxity(there, plugin, "explain", "pinned")
    assert "none while it is pinned" in why
    assert "rolebinding" not in why


def test_whatif_tells_a_verdict_and_creates_nothing(
    there: Place, plugin: Path, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(there.job("asked", {**HARD, "epoch-estimate": "1h"})))
    service = {"LAXITY_URL": there.service.url, "LAXITY_TOKEN": TOKEN}
    code, said = laxity(there, plugin, "whatif", str(file), **service)
    assert (code, said.splitlines()[0].partition(":")[0]) == (3, "refused"), said
    assert "instead: laxity.dev/deadline=" in said
    assert tried(there.cluster, "-n", there.namespace, "get", "job", "asked")[0] == 1


def test_the_krew_manifest_has_the_digest_of_the_archive(plugin: Path) -> None:
    spec = yaml.safe_load((plugin / "laxity.yaml").read_text())["spec"]
    digest = hashlib.sha256((plugin / "kubectl-laxity.tar.gz").read_bytes()).hexdigest()
    platform = spec["platforms"][0]
    assert (platform["uri"], platform["sha256"]) == (ADDRESS, digest)
    assert (plugin / platform["bin"]).exists()
