import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.config import kube_config

from laxity.instants import instant_at
from laxity_k8s.chains.job_links import build_link, read_limit_s, read_manifest
from laxity_k8s.chains.job_queue import find_namespace
from laxity_k8s.chains.job_rows import job_row, read_rows
from laxity_k8s.chains.job_waits import controller_words, pod_words, suspension_words
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from tests.support.slurm import until

STATE = ChainState("ab12cd34")
AT = "2026-11-26T08:00:0{}Z"


def job(command: list[str], folder: str = "/shared", **spec: Any) -> dict[str, Any]:
    worker: dict[str, Any] = {"name": "train", "image": "none", "command": command}
    worker["env"] = [{"name": "LAXITY_CHAIN_FOLDER", "value": folder}]
    pod = {"containers": [worker]}
    metadata = {"name": "train", "uid": "1", "creationTimestamp": AT.format(0)}
    return {"kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}, **spec}}


def run_link(manifest: dict[str, Any], seq: int) -> subprocess.Popen[str]:
    """What the kubelet would start for this link, with its own $(...) undone."""
    link = build_link(manifest, STATE, LinkRecord(seq), 600.0)
    command = link["spec"]["template"]["spec"]["containers"][0]["command"]
    text = [part.replace("$$", "$") for part in command]
    environ = {**os.environ, "JOB_COMPLETION_INDEX": "0"}
    return subprocess.Popen(text, env=environ, stdout=subprocess.PIPE, text=True)


def test_a_manifest_without_a_namespace_goes_where_the_context_of_its_beginning_points(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context = {"cluster": "c", "user": "u", "namespace": "team"}
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": context}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    unnamed, named = job(["train"]), job(["train"])
    named["metadata"]["namespace"] = "other"

    assert find_namespace(STATE, unnamed) == "team"
    assert find_namespace(STATE, named) == "other"
    assert find_namespace(ChainState("ab", namespace="before"), unnamed) == "before"
    begun_earlier = ChainState("ab", links=[LinkRecord(1, "train-ab-1")])
    assert find_namespace(begun_earlier, unnamed) == "default"


def test_of_two_links_that_run_one_trains_and_the_other_leaves_once_all_is_trained(
    tmp_path: Path,
) -> None:
    waits = f"echo $LAXITY_CHAIN_LINK >>{tmp_path}/trained; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    manifest = job(["sh", "-c", waits], str(tmp_path))
    trained = tmp_path / "trained"
    with run_link(manifest, 1) as first:
        until(trained.exists, "the first link trains")
        with run_link(manifest, 2) as second:
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(timeout=0.5)
            (tmp_path / "go").touch()
            assert (first.wait(timeout=60), second.wait(timeout=60)) == (0, 0)

    assert trained.read_text().split() == ["1"]


def test_after_exit_code_7_the_next_link_goes_on_and_after_a_failure_it_does_not(
    tmp_path: Path,
) -> None:
    manifest = job(
        ["sh", "-c", f'echo $LAXITY_ENDS_AT; exit "$(cat {tmp_path}/code)"'], str(tmp_path)
    )
    codes = []
    for seq, code in enumerate((7, 7, 3, 0), start=1):
        (tmp_path / "code").write_text(str(code))
        with run_link(manifest, seq) as process:
            assert process.stdout is not None
            ends_at = process.stdout.read()
            codes.append(process.wait(timeout=60))

    assert codes == [7, 7, 3, 1]
    assert ends_at == ""  # the fourth link has not run anything


def test_a_link_has_a_name_by_its_number_and_try_and_the_pod_has_the_limit() -> None:
    manifest = job(["train"], ttlSecondsAfterFinished=5, activeDeadlineSeconds=60)

    link = build_link(manifest, STATE, LinkRecord(3, lost_ids=["train-ab12cd34-3"]), 3_600.0)

    assert link["metadata"]["name"] == "train-ab12cd34-3-2"
    assert link["metadata"]["labels"]["laxity.dev/chain"] == "ab12cd34"
    assert link["spec"]["template"]["spec"]["activeDeadlineSeconds"] == 3600
    assert not {"ttlSecondsAfterFinished", "activeDeadlineSeconds"} & set(link["spec"])
    assert "metadata" not in manifest["spec"]["template"]  # the manifest itself is left alone


def without_command(manifest: dict[str, Any]) -> None:
    del manifest["spec"]["template"]["spec"]["containers"][0]["command"]


def without_folder(manifest: dict[str, Any]) -> None:
    del manifest["spec"]["template"]["spec"]["containers"][0]["env"]


def restarting(manifest: dict[str, Any]) -> None:
    manifest["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"


def of_laxity(manifest: dict[str, Any]) -> None:
    manifest["metadata"]["annotations"] = {"laxity.dev/wall-limit": "48h"}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_command, "command: say what runs"),
        (without_folder, "set LAXITY_CHAIN_FOLDER to a folder on a volume"),
        (restarting, "restartPolicy: write Never"),
        (of_laxity, "laxity.dev/wall-limit: this Job is for laxity's own queue"),
        (lambda manifest: manifest.update(kind="Pod"), "one batch/v1 Job is wanted"),
    ],
)
def test_a_manifest_that_cannot_be_a_link_is_refused_with_what_to_write(
    spoil: Callable[[dict[str, Any]], None], words: str
) -> None:
    manifest = job(["train"])
    spoil(manifest)

    with pytest.raises(ValueError, match=words):
        read_manifest(json.dumps(manifest))


def test_what_is_no_yaml_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="not YAML: while parsing") as refusal:
        read_manifest("{{{")
    assert len(str(refusal.value).splitlines()) == 1


def test_a_chain_without_a_limit_is_refused_and_an_option_goes_before_the_manifest() -> None:
    with pytest.raises(ValueError, match="--wall-limit 24h"):
        read_limit_s(job(["train"]), 0.0)
    assert read_limit_s(job(["train"], activeDeadlineSeconds=60), 0.0) == 60.0
    assert read_limit_s(job(["train"], activeDeadlineSeconds=60), 90.0) == 90.0


def pod(phase: str, started: int | None, *, owner: str = "Job", gpus: int = 0) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase}
    if started is not None:
        status["startTime"] = AT.format(started)
    worker = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    return {
        "metadata": {
            "name": "p",
            "uid": "p",
            "creationTimestamp": AT.format(0),
            "ownerReferences": [{"kind": owner, "name": "train", "uid": "1", "controller": True}],
        },
        "spec": {"containers": [worker]},
        "status": status,
    }


def test_a_job_waits_until_its_first_pod_has_a_node_and_again_when_it_is_put_back() -> None:
    waits, runs = pod("Pending", None), pod("Running", 5)

    row = job_row(job(["train"]), [waits, runs])
    assert (row.state, row.started_at) == (
        "RUNNING",
        row.submitted_at + 5.0 if row.submitted_at else 0,
    )
    assert job_row(job(["train"]), [waits]).state == "PENDING"
    assert job_row(job(["train"], suspend=True), []).state == "PENDING"
    assert job_row(job(["train"]), [pod("Failed", 2), waits]).state == "PENDING"
    assert job_row(job(["train"], suspend=True), [pod("Failed", 2)]).state == "PENDING"


def test_a_job_whose_last_pod_has_ended_and_that_is_not_yet_counted_out_does_not_wait_again() -> (
    None
):
    row = job_row(job(["train"]), [pod("Failed", 2)])

    assert (row.state, row.started_at) == ("RUNNING", instant_at(AT.format(2)))


def test_services_are_no_queue_and_without_gpus_nothing_waits_for_gpus() -> None:
    others = [pod("Running", 1, owner="ReplicaSet", gpus=1), pod("Running", 1, owner="RayCluster")]

    assert [row.name for row in read_rows([job(["train"])], others, gpus_only=False)] == [
        "train",
        "p",
    ]
    assert read_rows([job(["train"])], others, gpus_only=True) == []
    ray = pod("Pending", None, owner="RayCluster", gpus=2)
    assert [row.nodes for row in read_rows([], [ray], gpus_only=True)] == [2]


def test_why_a_job_waits_is_told_by_its_queue_its_scheduler_or_its_controller() -> None:
    in_queue = job(["train"], suspend=True)
    in_queue["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    unplaced = pod("Pending", None)
    unplaced["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "1 Insufficient nvidia.com/gpu"}
    ]
    early, late = (
        {"type": "Warning", "lastTimestamp": AT.format(second), "message": message}
        for second, message in (
            (1, "first"),
            (2, 'Error creating: pods "train-x" is forbidden: exceeded quota: team'),
        )
    )
    begun = {"type": "Normal", "lastTimestamp": AT.format(3), "message": "Created pod"}

    assert suspension_words(in_queue) == "Kueue has not admitted it to team-a yet"
    assert suspension_words(job(["train"])) == ""
    assert pod_words([unplaced]) == "has no node: 1 Insufficient nvidia.com/gpu"
    assert pod_words([pod("Failed", 2)]) == ""
    assert controller_words([late, early, begun]) == "no pod can be created: exceeded quota: team"
    assert controller_words([begun]) == ""
