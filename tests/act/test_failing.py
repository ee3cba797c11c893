"""A Job whose workers fail again and again is failed with their error; one that may recover is not."""

from collections.abc import Sequence
from typing import Any

import pytest

from laxity import names
from laxity.instants import format_rfc3339
from laxity.job.qos import QoS
from laxity.job.spec import MOST_RESTARTS, TrainingSpec
from laxity.job.worker_exits import EXIT_RAISED
from laxity_k8s.act.adoption import Tending
from laxity_k8s.act.failing import MOST_CUT_LINKS
from laxity_k8s.act.failing import find_failure as failing_at
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.pods import COMPLETION_INDEX
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_scheduler.live import Report, Reports

BEGAN_AT = 1_700_000_000.0
NOW = BEGAN_AT + 3600.0
KILLED = (
    "worker 0 failed with exit code 137 (SIGKILL: killed from outside, often by the memory limit); "
    "last output: boo"
)


def failing(job: Json, own: Sequence[Json], reports: Reports) -> Tending | None:
    return failing_at(job, own, reports, now=NOW)


def target(found: Tending) -> Json:
    """The condition by which it fails, in a patch of the status alone."""
    assert found.patch.subresource == "status"
    assert found.patch.body.keys() == {"metadata", "status"}
    condition: Json = found.patch.body["status"]["conditions"][-1]
    return {key: condition[key] for key in ("type", "status", "reason", "message")}


def training(*, running: bool = True, failed_starts: int = 0, **notes: str) -> Json:
    made = TrainingSpec(name="train", qos=QoS.of(deadline="1h"), entry="m:f").to_manifest()
    made["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    kept = JobStatusRecord(wanted=int(running), failed_starts=failed_starts)
    made["metadata"]["annotations"] |= {names.STATUS: kept.to_text(), **notes}
    made["spec"]["suspend"] = not running
    return made


def plain(*command: str, width: int = 1) -> Json:
    """A Job that runs, NonIndexed, written by hand."""
    job = training()
    for name in (names.ENTRY, names.PARAMETERS, names.WIDTHS):
        del job["metadata"]["annotations"][name]
    job["spec"] |= {"completionMode": "NonIndexed", "backoffLimit": 1000, "parallelism": width}
    job["spec"]["template"]["spec"]["containers"][0]["command"] = list(command)
    kept = JobStatusRecord(wanted=width)
    job["metadata"]["annotations"] |= {names.STATUS: kept.to_text()}
    return job


def unnumbered(pod: Json) -> Json:
    """It as one of a Job that is not Indexed."""
    return {**pod, "metadata": {"name": pod["metadata"]["name"]}}


def failed(
    number: int, *, index: int = 0, code: int = 137, disrupted: bool = False, last: str = "boo"
) -> Json:
    """The pod that failed in this minute."""
    end = {
        "exitCode": code,
        "finishedAt": format_rfc3339(BEGAN_AT + 60.0 * number),
        "message": f"a\n{last}",
    }
    target = [{"type": "DisruptionTarget", "status": "True"}] if disrupted else []
    return {
        "metadata": {"name": f"p{number}-{index}", "annotations": {COMPLETION_INDEX: str(index)}},
        "status": {
            "phase": "Failed",
            "conditions": target,
            "containerStatuses": [{"name": "train", "state": {"terminated": end}}],
        },
    }


def waiting(why: str) -> Json:
    state = {"waiting": {"reason": why, "message": "no such image"}}
    return {
        "metadata": {"name": "p", "annotations": {COMPLETION_INDEX: "0"}},
        "spec": {"nodeName": "a"},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "train", "state": state}]},
    }


def said(**report: Any) -> Reports:
    return lambda _: Report(**report)


OFTEN = [failed(number) for number in range(MOST_RESTARTS + 1)]


def test_failures_in_one_pod_count_as_those_of_several() -> None:
    """With `restartPolicy: OnFailure` it stays, and its kubelet starts the container again."""
    pod = failed(0, code=7)
    pod["metadata"]["creationTimestamp"] = format_rfc3339(BEGAN_AT)
    (train,) = pod["status"]["containerStatuses"]
    pod["status"]["phase"] = "Running"

    train["restartCount"] = MOST_RESTARTS - 1
    assert failing(training(), [pod], said()) is None
    train["restartCount"] = MOST_RESTARTS
    found = failing(training(), [pod], said())
    assert found is not None
    assert found.words.startswith("failed 4 times without finishing an epoch: worker 0 failed")
    assert failing(training(), [pod], said(epoch_ended_at=BEGAN_AT + 1.0)) is None


def test_pods_that_their_node_turns_away_fail_no_training() -> None:
    away = [failed(number) for number in range(MOST_RESTARTS + 1)]
    for pod in away:
        pod["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    assert failing(training(), away, said()) is None


def test_pods_that_ran_and_a_kubelet_started_anew_turns_away_fail_no_training() -> None:
    away = [failed(number) for number in range(MOST_RESTARTS + 1)]
    for pod in away:
        pod["status"]["message"] = "Pod was rejected: The node had condition: [MemoryPressure]. "
    assert failing(training(), away, said()) is None


@pytest.mark.parametrize("running", [True, False], ids=["running", "suspended"])
def test_a_job_that_keeps_failing_is_failed_with_its_last_error(*, running: bool) -> None:
    found = failing(training(running=running), OFTEN, said())

    assert found is not None
    words = f"failed 4 times without finishing an epoch: {KILLED}"
    assert found.words == found.patch.body["metadata"]["annotations"][names.REASON] == words
    why = {"reason": "WorkersKeepFailing", "message": words}
    assert target(found) == {"type": "FailureTarget", "status": "True", **why}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("python", "-m", "laxity.worker", "train:resnet"), id="as in the docs"),
        pytest.param(("sh", "-c", "exec python -m laxity.worker train:resnet"), id="in a shell"),
    ],
)
def test_a_job_of_any_kind_fails_where_its_laxity_worker_keeps_failing(command: Any) -> None:
    found = failing(plain(*command), [unnumbered(pod) for pod in OFTEN], said())

    assert found is not None
    assert target(found)["message"] == found.words
    assert "failed 4 times" in found.words
    assert found.words.endswith(KILLED)


def test_a_container_of_somebody_else_that_keeps_failing_is_only_told_so() -> None:
    own = [unnumbered(pod) for pod in OFTEN]
    found = failing(plain("python", "train.py"), own, said())

    assert found is not None
    assert found.patch.body.keys() == {"metadata"}, "its own backoffLimit counts"
    words = f"failed 4 times in a row: {KILLED}"
    assert found.words == found.patch.body["metadata"]["annotations"][names.REASON] == words

    told = plain("python", "train.py")
    told["metadata"]["annotations"][names.REASON] = words
    assert failing(told, own, said()) is None, "it is told once"
    patient = plain("python", "train.py")
    patient["metadata"]["annotations"][names.RESTARTS] = "9"
    assert failing(patient, own, said()) is None, "its user expects more"


def test_pods_without_an_index_count_together_since_the_last_success() -> None:
    own = [unnumbered(pod) for pod in OFTEN]
    done = unnumbered(failed(2))
    done["status"] = {**done["status"], "phase": "Succeeded"}

    assert failing(plain("python", "train.py", width=2), own, said()) is None, "twice each"
    assert failing(plain("python", "train.py"), [*own, done], said()) is None, "one has succeeded"


@pytest.mark.parametrize(
    ("own", "report"),
    [
        pytest.param(OFTEN[1:], {}, id="one failure fewer"),
        pytest.param(OFTEN, {"epoch_ended_at": BEGAN_AT + 90}, id="an epoch in between"),
        pytest.param([failed(n, code=143) for n in range(9)], {}, id="stopped"),
        pytest.param([failed(n, code=75) for n in range(9)], {}, id="another worker was lost"),
        pytest.param([failed(n, disrupted=True) for n in range(9)], {}, id="evicted"),
        pytest.param([failed(0, index=n) for n in range(9)], {}, id="nine workers, once each"),
    ],
)
def test_a_job_that_may_recover_is_left_alone(own: list[Json], report: dict[str, Any]) -> None:
    assert failing(training(), own, said(**report)) is None


def retrying(restarts: int) -> Json:
    job = training()
    job["metadata"]["annotations"][names.RESTARTS] = str(restarts)
    return job


@pytest.mark.parametrize("restarts", [0, 1, 5])
def test_the_declaration_says_how_many_restarts_may_finish_no_epoch(restarts: int) -> None:
    own = [failed(number) for number in range(restarts + 1)]

    assert failing(retrying(restarts), own[:-1], said()) is None
    assert failing(retrying(restarts), own, said()) is not None


def raised(number: int, last: str) -> Json:
    return failed(number, code=EXIT_RAISED, last=last)


def test_the_same_exception_twice_in_an_epoch_fails_the_job_at_once() -> None:
    own = [raised(0, "OSError: stale"), raised(1, "OSError: stale")]

    found = failing(training(), own, said())

    assert found is not None
    assert target(found)["reason"] == "WorkerFailedAgain"
    assert found.words.endswith("worker 0 failed with exit code 70: OSError: stale")


@pytest.mark.parametrize(
    ("own", "report"),
    [
        pytest.param(
            [raised(0, "OSError: stale"), raised(1, "KeyError: 3")], {}, id="two exceptions"
        ),
        pytest.param(
            [raised(0, "OSError: stale"), raised(2, "OSError: stale")],
            {"epoch_ended_at": BEGAN_AT + 90},
            id="in two epochs",
        ),
        pytest.param([failed(0), failed(1)], {}, id="killed twice"),
    ],
)
def test_what_another_start_may_mend_is_left_alone(own: list[Json], report: Any) -> None:
    assert failing(training(), own, said(**report)) is None


@pytest.mark.parametrize("code", [1, 2])
def test_an_exit_that_no_start_mends_fails_a_job_without_a_policy_at_once(code: int) -> None:
    own = [unnumbered(failed(0, code=code))]
    job = plain("python", "-m", "laxity.worker", "m:f")
    del job["spec"]["podFailurePolicy"]

    found = failing(job, own, said())

    assert found is not None
    assert target(found)["reason"] == "WorkerFailed"
    assert failing(plain("python", "train.py"), own, said()) is None, "its own backoffLimit counts"


@pytest.mark.parametrize("code", [1, 2, EXIT_RAISED])
def test_exit_codes_of_another_program_with_epochs_leave_its_retries_to_kubernetes(
    code: int,
) -> None:
    job = training()
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "train.py"]
    job["metadata"]["annotations"] |= {names.EPOCHS: "3"}
    del job["spec"]["podFailurePolicy"]
    own = [failed(number, code=code) for number in range(MOST_RESTARTS + 1)]

    assert failing(job, own[:-1], said()) is None
    found = failing(job, own, said())
    assert found is not None
    assert target(found)["reason"] == "WorkersKeepFailing"
    job["metadata"]["annotations"] |= {names.RESTARTS: "9"}
    assert failing(job, own, said()) is None, "one rule for all commands"


def test_an_image_that_cannot_be_pulled_fails_the_job_at_its_third_start() -> None:
    own = [waiting("ImagePullBackOff")]

    found = failing(training(failed_starts=2), own, said())

    assert found is not None
    assert "3 starts in a row failed: worker 0 waits on a: ImagePullBackOff: no such" in found.words
    assert failing(training(failed_starts=1), own, said()) is None
    assert failing(training(failed_starts=9), [waiting("ContainerCreating")], said()) is None


MOUNT = 'MountVolume.SetUp failed for volume "data" : '


def unplaced(why: str) -> Json:
    scheduled = {"type": "PodScheduled", "status": "False", "message": why}
    return {"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [scheduled]}}


@pytest.mark.parametrize(
    ("own", "hangs_on"),
    [
        pytest.param([], f'{MOUNT}configmap "data" not found', id="ConfigMap"),
        pytest.param([], f'{MOUNT}secret "data" not found', id="Secret"),
        pytest.param([], f"{MOUNT}configmap references non-existent config key: x", id="its key"),
        pytest.param([], 'error looking up service account: serviceaccount "x" not found', id="SA"),
        pytest.param(
            [unplaced('0/4 nodes are available: persistentvolumeclaim "data" not found.')], "",
            id="claim",
        ),
    ],
)  # fmt: skip
def test_what_pods_name_and_is_not_there_fails_the_job_at_its_third_start(
    own: list[Json], hangs_on: str
) -> None:
    found = failing_at(training(failed_starts=2), own, said(), now=NOW, hangs_on=hangs_on)

    assert found is not None
    assert target(found)["reason"] == "WorkersCannotStart"
    assert found.words.startswith("3 starts in a row failed: ")
    early = training(failed_starts=1)
    assert failing_at(early, own, said(), now=NOW, hangs_on=hangs_on) is None


@pytest.mark.parametrize(
    ("own", "hangs_on"),
    [
        pytest.param([], "Multi-Attach error for volume: already used by pod", id="attached"),
        pytest.param(
            [], f"{MOUNT}driver name x not found in the list of registered CSI drivers",
            id="driver starts",
        ),
        pytest.param([unplaced("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.")], "",
                     id="no room"),
    ],
)  # fmt: skip
def test_volumes_and_nodes_that_may_be_free_later_fail_no_job(
    own: list[Json], hangs_on: str
) -> None:
    starts = training(failed_starts=9)
    assert failing_at(starts, own, said(), now=NOW, hangs_on=hangs_on) is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda job: job.update(
                status={"conditions": [{"type": "FailureTarget", "status": "True"}]}
            ),
            id="it is about to fail",
        ),
        pytest.param(
            lambda job: job["metadata"]["annotations"].update({names.PIN: "by hand"}), id="pinned"
        ),
        pytest.param(lambda job: job["metadata"]["labels"].clear(), id="not ours"),
    ],
)
def test_jobs_that_are_not_ours_to_fail_are_left_alone(change: Any) -> None:
    job = training()
    change(job)

    assert failing(job, OFTEN, said()) is None


def test_a_chain_whose_links_end_twice_in_one_epoch_is_failed_with_the_reason() -> None:
    def chain(links: int) -> Json:
        made = training()
        made["metadata"]["annotations"][names.WALL_LIMIT] = "1h"
        kept = JobStatusRecord(wanted=1, cut_epoch=3, cut_links=links)
        made["metadata"]["annotations"][names.STATUS] = kept.to_text()
        return made

    assert failing(chain(MOST_CUT_LINKS - 1), [], said()) is None
    found = failing(chain(MOST_CUT_LINKS), [], said())
    assert found is not None
    assert target(found)["reason"] == "EpochOverWallLimit"
    assert "2 links of 1h00m have ended" in target(found)["message"]


def test_links_by_the_jobs_own_clock_are_failed_as_well_unless_it_is_gone() -> None:
    made = training()
    kept = JobStatusRecord(wanted=1, cut_epoch=3, cut_links=MOST_CUT_LINKS)
    made["metadata"]["annotations"][names.STATUS] = kept.to_text()
    assert failing(made, [], said()) is None
    made["spec"]["activeDeadlineSeconds"] = 60
    found = failing(made, [], said())
    assert found is not None
    assert "2 links of 1m00s have ended" in target(found)["message"]
