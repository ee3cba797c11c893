"""Workers of the local cluster are processes: what they are given, how they stop, what is kept."""

import json
import os
import sys
from pathlib import Path

import pytest

from laxity import json_tree, names
from laxity_k8s import steady_clock
from laxity_k8s.cluster_api import ApiError, Json, Patch
from laxity_k8s.local.local_cluster import LocalCluster, open_world, stop_workers
from laxity_k8s.local.worker_processes import pids_of
from laxity_k8s.objects import pods
from laxity_k8s.objects.conditions import read_condition
from laxity_scheduler.live import Report
from tests.support.machine import Machine
from tests.support.waiting import Eyes, until

pytestmark = pytest.mark.slow


ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
UNTIL_STOPPED = "import signal; print('up', flush=True); signal.pause()"


def test_a_worker_has_the_environment_of_a_pod_and_what_laxity_adds(machine: Machine) -> None:
    field = {"fieldRef": {"fieldPath": "metadata.annotations['note']"}}
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "FROM", "value": "$(PLAIN)-y $(NOT_THERE) $$(PLAIN)"},
        {"name": "NOTE", "valueFrom": field},
        {"name": "IP", "valueFrom": address},
    ]
    job_id = machine.run("env", ENVIRONMENT, width=2, container={"env": env})
    uid = machine.complete(job_id)["metadata"]["uid"]
    said = json.loads(machine.log(job_id, 1))
    assert said["JOB_COMPLETION_INDEX"] == "1"
    assert said["HOSTNAME"] == "env-1"
    assert (said["PLAIN"], said["FROM"]) == ("x", "x-y $(NOT_THERE) $(PLAIN)")
    assert (said["NOTE"], said["IP"]) == ("hello", "127.0.0.1")
    assert (said[names.ENV_JOB], said[names.ENV_JOB_UID]) == (job_id, uid)
    assert (said[names.ENV_URL], said[names.ENV_TOKEN]) == ("http://service", "secret")
    assert said["PYTHONUNBUFFERED"] == "1"
    assert (
        Path(said[names.ENV_CHECKPOINTS]) == machine.home / "checkpoints/default" / f"env-{uid[:8]}"
    )
    assert Path(said[names.ENV_CHECKPOINTS]).is_dir()


def test_command_and_args_are_expanded_and_run_in_the_working_folder(
    machine: Machine, tmp_path: Path
) -> None:
    container = {
        "command": [sys.executable, "-S", "-c", "import os, sys; print(sys.argv[1], os.getcwd())"],
        "args": ["$(WHO)"],
        "env": [{"name": "WHO", "value": "me"}],
        "workingDir": str(tmp_path),
    }
    job_id = machine.run("args", "", container=container)
    machine.complete(job_id)
    assert machine.log(job_id).split() == ["me", str(tmp_path)]


def test_a_worker_that_does_not_stop_is_killed_after_its_grace(machine: Machine) -> None:
    stubborn = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-S', '-c', sys.argv[1]])
print(os.getpid(), child.pid, flush=True)
while True: signal.pause()
"""
    child = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()"
    )
    job_id = machine.run("stubborn", stubborn, child, grace_s=1)
    until(lambda: len(machine.log(job_id).split()) == 2, "both run")
    (uid,) = (pod["metadata"]["uid"] for pod in machine.api.list("pods").items)
    with Eyes(machine.api) as eyes:
        machine.api.patch(Patch("jobs", job_id, {"spec": {"suspend": True}}))
        eyes.saw(job_id, lambda job: job["status"].get("terminating") == 1, "it terminates")
        eyes.until(lambda: not eyes.pods(job_id), "it is gone")
        assert not eyes.job(job_id)["status"].get("failed")
    assert list(pids_of(uid)) == []


def test_a_worker_has_its_grace_to_save(machine: Machine) -> None:
    saving = """
import signal, sys, time
def stop(*_):
    print('saved', flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print('up', flush=True); signal.pause()
"""
    job_id = machine.run("saving", saving)
    until(lambda: machine.log(job_id) == "up\n", "it is up")
    with Eyes(machine.api) as eyes:
        machine.api.patch(Patch("jobs", job_id, {"spec": {"suspend": True}}))
        eyes.until(lambda: not eyes.pods(job_id), "it is gone")
        assert not eyes.job(job_id)["status"].get("succeeded")
    assert machine.log(job_id) == "up\nsaved\n"


def test_a_failing_worker_is_replaced_until_the_limit_fails_the_job(machine: Machine) -> None:
    job_id = machine.run("failing", "print('tried'); raise SystemExit(3)", backoffLimit=2)
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: read_condition(eyes.job(job_id), "Failed") == "True", "it fails")
        status = eyes.job(job_id)["status"]
        assert status["failed"] == 3
        failed = next(one for one in status["conditions"] if one["type"] == "Failed")
        assert failed["message"] == "worker 0 failed with exit code 3: tried"
    assert machine.log(job_id).split() == ["tried"] * 3
    codes = {pods.exit_code(pod) for pod in machine.api.list("pods").items}
    assert codes == {3}


def test_what_a_worker_wrote_is_kept_when_its_pod_goes_with_the_failed_job(
    machine: Machine,
) -> None:
    program = """
import os, sys, time
print('I am', os.environ['JOB_COMPLETION_INDEX'], flush=True)
if os.environ['JOB_COMPLETION_INDEX'] == '1':
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    sys.exit(3)
open(sys.argv[1], 'w').close()
time.sleep(600)
"""
    mark = str(machine.home / "mark")
    job_id = machine.run("both", program, mark, width=2, backoffLimit=0)
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: read_condition(eyes.job(job_id), "Failed") == "True", "it fails")
        job = eyes.job(job_id)
    assert [pods.index_of(pod) for pod in machine.api.list("pods").items] == [1]
    assert machine.api.log_left(job, 0) == "I am 0\n"
    job["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"  # a later Job of this name
    assert machine.api.log_left(job, 0) == ""


def test_a_worker_that_fails_once_is_replaced_alone(machine: Machine, tmp_path: Path) -> None:
    once = """
import os, sys
mark = sys.argv[1] + os.environ['JOB_COMPLETION_INDEX']
first = not os.path.exists(mark)
open(mark, 'a').write('.')
sys.exit(1 if first and mark.endswith('1') else 0)
"""
    job_id = machine.run("once", once, str(tmp_path / "mark"), width=2)
    assert machine.complete(job_id)["status"]["failed"] == 1
    assert [(tmp_path / f"mark{index}").read_text() for index in (0, 1)] == [".", ".."]


def test_a_program_that_is_not_there_fails_with_words_in_the_log(machine: Machine) -> None:
    job_id = machine.run("absent", "", backoffLimit=0, container={"command": ["/no/such/program"]})
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: read_condition(eyes.job(job_id), "Failed") == "True", "it fails")
    assert "cannot start '/no/such/program'" in machine.log(job_id)


def test_pods_wait_while_all_slots_are_taken(machine: Machine) -> None:
    first = machine.run("first", UNTIL_STOPPED, width=3)
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: eyes.job(first).get("status", {}).get("ready") == 3, "the first has its")
        second = machine.run("second", UNTIL_STOPPED, width=2)
        eyes.until(
            lambda: (
                sorted(pods.phase_of(pod) for pod in eyes.pods(second)) == ["Pending", "Running"]
            ),
            "one of two runs",
        )
        machine.api.delete("jobs", first)
        eyes.until(lambda: eyes.job(second).get("status", {}).get("ready") == 2, "both run")


def test_image_and_volumes_are_passed_over_with_one_notice(machine: Machine) -> None:
    volumes = [{"name": "data", "emptyDir": {}}]
    job_id = machine.run(
        "notice", "", width=2, pod={"volumes": volumes}, container={"image": "registry/trainer"}
    )
    machine.complete(job_id)
    said = [event["message"] for event in machine.api.list("events").items]
    assert len(said) == 1
    assert "image registry/trainer, volume data" in said[0]


def test_workers_outlive_the_service_and_the_next_takes_them_over(machine: Machine) -> None:
    job_id = machine.run("survivor", UNTIL_STOPPED, width=2)
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: eyes.job(job_id).get("status", {}).get("ready") == 2, "both run")
        before = {pod["metadata"]["uid"] for pod in eyes.pods(job_id)}
    machine.api.close()
    machine.open()
    with Eyes(machine.api) as eyes:
        assert {pod["metadata"]["uid"] for pod in eyes.pods(job_id)} == before
        machine.api.patch(Patch("jobs", job_id, {"spec": {"suspend": True}}))
        eyes.until(lambda: not eyes.pods(job_id), "they are stopped")


def test_what_ended_while_no_service_was_there_is_noted_by_the_next(
    machine: Machine, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job_id = machine.run("gated", "import sys; open(sys.argv[1]).read()", str(gate))
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: eyes.job(job_id).get("status", {}).get("ready") == 1, "it runs")
        (uid,) = (pod["metadata"]["uid"] for pod in eyes.pods(job_id))
    machine.api.close()
    gate.write_text("go")
    until((tmp_path / "pods" / uid / "exit.json").exists, "it has ended")
    machine.open()
    machine.complete(job_id)


def test_stopped_workers_go_on_with_the_next_service_and_no_failure_is_counted(
    machine: Machine,
) -> None:
    job_id = machine.run("down", UNTIL_STOPPED, width=2)
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: eyes.job(job_id).get("status", {}).get("ready") == 2, "both run")
        old = {pod["metadata"]["uid"] for pod in eyes.pods(job_id)}
    machine.api.close()
    assert stop_workers(machine.home) == 2
    assert [pid for uid in old for pid in pids_of(uid)] == []
    machine.open()
    with Eyes(machine.api) as eyes:
        eyes.until(
            lambda: (
                not old & {pod["metadata"]["uid"] for pod in eyes.pods(job_id)}
                and eyes.job(job_id)["status"].get("ready") == 2
            ),
            "two others run",
        )
        pods_over = [p for p in machine.api.list("pods").items if pods.is_finished(p)]
    assert all(pods.disruption_reason(pod) for pod in pods_over)


def test_a_reboot_replaces_all_workers(machine: Machine) -> None:
    job_id = machine.run("rebooted", UNTIL_STOPPED)
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: eyes.job(job_id).get("status", {}).get("ready") == 1, "it runs")
        (old,) = (pod["metadata"]["uid"] for pod in eyes.pods(job_id))
    machine.api.close()
    mark = machine.home / "pods" / old / "started.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "boot": "another"}))
    machine.open()
    with Eyes(machine.api) as eyes:
        eyes.until(
            lambda: [
                p for p in eyes.pods(job_id) if pods.is_ready(p) and p["metadata"]["uid"] != old
            ],
            "another runs",
        )
    until(lambda: not list(pids_of(old)), "what was left of it is gone")


def test_workers_of_a_node_that_is_gone_go_elsewhere(machine: Machine) -> None:
    machine.api.close()
    machine.open({"a": 1, "b": 1})
    job_id = machine.run("moved", UNTIL_STOPPED, width=2)
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: eyes.job(job_id).get("status", {}).get("ready") == 2, "both run")
    machine.api.close()
    machine.open({"b": 2})
    with Eyes(machine.api) as eyes:
        eyes.until(
            lambda: (
                [pods.node_of(pod) for pod in eyes.pods(job_id) if pods.is_ready(pod)] == ["b", "b"]
            ),
            "both run on b",
        )


def test_one_folder_is_served_by_one_process(machine: Machine) -> None:
    with pytest.raises(ApiError, match=f"in use by process {os.getpid()}"):
        LocalCluster(machine.home, {"local": 1})


def test_a_labelled_job_starts_suspended_and_one_of_kueues_does_not(machine: Machine) -> None:
    def create(name: str, **labels: str) -> Json:
        made = {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "completionMode": "Indexed",
                "template": {
                    "spec": {"restartPolicy": "Never", "containers": [{"command": ["true"]}]}
                },
            },
        }
        return machine.api.create("jobs", made)

    ours = create("ours", **{names.MANAGED: "true"})
    kueues = create("kueues", **{names.MANAGED: "true", names.KUEUE_QUEUE: "team"})
    assert (ours["spec"]["suspend"], kueues["spec"]["suspend"]) == (True, False)


def test_old_jobs_and_what_they_left_are_collected_and_young_ones_kept(machine: Machine) -> None:
    job_id = machine.run("old", "print('done')")
    machine.complete(job_id)
    log = Path(machine.api.log_path(job_id, 0))
    (folder,) = (machine.home / "checkpoints/default").iterdir()
    machine.api.collect(keep_s=3600.0)
    assert log.exists()
    assert folder.exists()
    machine.api.collect(keep_s=-1.0)
    assert not log.exists()
    assert not folder.exists()
    with pytest.raises(ApiError):
        machine.api.get("jobs", job_id)


@pytest.mark.parametrize(
    ("set_by_s", "kept"),
    [pytest.param(8 * 86_400.0, True, id="by 8 days"), pytest.param(60.0, False, id="by a minute")],
)
def test_a_clock_that_is_set_far_ahead_removes_no_finished_job(
    set_by_s: float, kept: bool, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = machine.run("old", "print('done')")
    machine.complete(job_id)
    machine.api.close()
    world = open_world(machine.home, lambda _: Report(), slots=4, keep_s=-1.0)
    monkeypatch.setattr(steady_clock, "_boot_at", lambda: steady_clock._FIRST_BOOT_AT + set_by_s)
    world.collect()
    found = world.api.list("jobs").items
    world.close()
    assert bool(found) is kept


def test_logs_are_bounded_and_the_latest_is_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laxity_k8s.local.worker_processes.LOG_BYTES", 1000)
    chatty = "for n in range(400): print(f'{n:05}', flush=True)"
    job_id = machine.run("chatty", chatty)
    machine.complete(job_id)
    log = Path(machine.api.log_path(job_id, 0))
    kept = log.with_name(f"{log.name}.1").read_text() + log.read_text()
    assert kept.splitlines()[-1] == "00399"
    assert 1000 < len(kept) < 2 * (1000 + 65_536)


def test_deleting_a_job_by_name_and_creating_it_anew_makes_another_worker(machine: Machine) -> None:
    job_id = machine.run("again", UNTIL_STOPPED)
    with Eyes(machine.api) as eyes:
        eyes.until(lambda: eyes.job(job_id).get("status", {}).get("ready") == 1, "it runs")
        (old,) = (pod["metadata"]["uid"] for pod in eyes.pods(job_id))
        machine.api.delete("jobs", job_id)
        machine.run("again", UNTIL_STOPPED)
        eyes.until(
            lambda: [
                p for p in eyes.pods(job_id) if pods.is_ready(p) and p["metadata"]["uid"] != old
            ],
            "another runs",
        )
    until(lambda: not list(pids_of(old)), "the old one is gone")


def test_the_log_of_a_pod_is_read_through_the_api(machine: Machine) -> None:
    job_id = machine.run("talking", "print('words')")
    machine.complete(job_id)
    (pod,) = machine.api.list("pods").items
    assert machine.api.log(json_tree.object_id(pod)) == "words\n"
