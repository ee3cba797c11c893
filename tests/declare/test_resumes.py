"""Code that keeps its own state says so, and its workers are told."""

from typing import Any

import pytest

from laxity import Training, deadline_flow, names
from laxity.flow.declaration import Declaration
from laxity.job.complete_manifest import complete_manifest
from laxity.job.qos import QoS, QoSError
from laxity.job.spec import TrainingSpec
from laxity.worker.code.environment import WorkerEnvironment, WorkerEnvironmentError
from tests.support.manifests import indexed_job, train_template


def spec_of(**options: Any) -> TrainingSpec:
    return Declaration.of("train", options).spec(entry="m:f", parameters={})


def worker_env(manifest: dict[str, Any]) -> dict[str, str]:
    rows = manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    return {row["name"]: row["value"] for row in rows if "value" in row}


def test_it_travels_from_the_flow_to_the_worker() -> None:
    manifest = spec_of(resumes=True).to_manifest()
    env = worker_env(manifest) | {names.ENV_CHECKPOINTS: "/data"}

    assert manifest["metadata"]["annotations"][names.RESUMES] == "true"
    assert TrainingSpec.from_manifest(manifest).resumes is True
    assert WorkerEnvironment.of(env).resumes is True


def test_without_it_the_job_is_as_before() -> None:
    manifest = spec_of().to_manifest()

    assert names.RESUMES not in manifest["metadata"]["annotations"]
    assert names.ENV_RESUMES not in worker_env(manifest)


def test_a_job_written_by_hand_is_completed_with_it() -> None:
    job = indexed_job("a", train_template(), {"epochs": "3", "resumes": "true"})

    complete_manifest(job)

    assert worker_env(job)[names.ENV_RESUMES] == "true"


@pytest.mark.parametrize("value", ["true", 1, None])
def test_anything_but_yes_or_no_is_refused(value: Any) -> None:
    with pytest.raises(QoSError, match=r"resumes: .* is neither True nor False"):
        TrainingSpec(name="a", qos=QoS(), resumes=value)


def test_a_worker_is_not_told_nonsense() -> None:
    with pytest.raises(
        WorkerEnvironmentError, match="LAXITY_RESUMES='yes': expected true or false"
    ):
        WorkerEnvironment.of({names.ENV_RESUMES: "yes"})


@pytest.mark.parametrize("resumes", [True, False])
def test_trained_alone_it_goes_on_only_where_it_says_so(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, *, resumes: bool
) -> None:
    monkeypatch.setenv(names.ENV_CHECKPOINTS, str(tmp_path))
    monkeypatch.setenv(names.ENV_SAVING_SHARE, "1")  # on a slow machine, too

    @deadline_flow(epochs=3, resumes=resumes)
    def train(training: Training, stop_after: int) -> list[int]:
        trained = []
        for epoch in training.epochs():
            if epoch > stop_after:
                break
            trained.append(epoch)
        return trained

    first, second = (train.alone(stop_after=epochs) for epochs in (2, 3))

    assert (first, second) == ([1, 2], [3] if resumes else [1, 2, 3])
