"""A script that is run unchanged: its posts are the epochs of the training, also when it is stopped."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from laxity.worker import script
from tests.support.accelerated import ACCELERATE, assert_one_model, seen_alone
from tests.support.job_workers import PATIENCE_S, JobWorkers
from tests.support.training_service import Line, Service

pytestmark = pytest.mark.slow
POSTING = str(Path(__file__).parents[1] / "support/programs/posting.py")
RAISED, RESTART, STOPPED = 70, 75, 143


class ScriptCrew(JobWorkers):
    """Worker 0 of a job that runs `posting.py` with these steps."""

    def begin(
        self,
        *steps: str,
        resume_args: Sequence[str] = (),
        grace_s: int = 30,
        epochs: int = 100,
        resumes: bool = False,
        index: int = 0,
        launcher: str = "",
    ) -> "subprocess.Popen[bytes]":
        command = [sys.executable, POSTING, *steps]
        arguments = {"command": command, "resume_args": resume_args, "grace_s": grace_s}
        environ = {
            "LAXITY_PARAMETERS": json.dumps(arguments),
            "LAXITY_EPOCHS": str(epochs),
            "LAXITY_RESUMES": str(resumes).lower(),
            "LAXITY_LAUNCHER": launcher,
        }
        return self.start("run_script", index=index, environ=environ)

    def begin_two(self, *steps: str) -> "list[subprocess.Popen[bytes]]":
        """Both workers of a script for torchrun."""
        options: Any = {"resumes": True, "launcher": "torch"}
        return [self.begin(*steps, index=index, **options) for index in (0, 1)]

    def end(self, *steps: str, **options: Any) -> int:
        return self.begin(*steps, **options).wait(PATIENCE_S)

    def allow(self, name: str) -> None:
        (self.gates / name).touch()

    def until_there(self, name: str) -> None:
        self.until((self.gates / name).exists, f"the file {name}")


@pytest.fixture
def scripts(tmp_path: Path, service: Service) -> Iterator[ScriptCrew]:
    job_workers = ScriptCrew(tmp_path, url=service.url, file=Path(script.__file__))
    yield job_workers
    job_workers.close()


def epochs_of(lines: list[Line]) -> list[int]:
    return [line["epoch"] for line in lines]


def test_each_per_cent_is_an_epoch_and_ends_between_two_posts(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("0", "await:half", "loss=0.7", "50", "await:whole", "100")
    service.until_reported("formed", epoch=0)
    scripts.allow("half")
    service.until_reported("epoch", epoch=50)

    scripts.allow("whole")

    assert worker.wait(PATIENCE_S) == 0
    lines = service.of("epoch")
    assert epochs_of(lines) == list(range(1, 101))
    first, second = lines[1:50], lines[50:]
    for half in (first, second):
        times = [line["epoch_s"] for line in half]
        assert max(times) == pytest.approx(min(times), rel=1e-6)
    assert scripts.result() == {"progress_percent": 100.0, "loss": 0.7}
    assert {"loss": 0.7} in [line["metrics"] for line in lines]


def test_steps_count_where_they_are_posted_beside_the_percentage(
    scripts: ScriptCrew, service: Service
) -> None:
    code = scripts.end("1/40", "2/40", "3/40", "100")  # as a Trainer whose early stopping ends it

    assert code == 0
    assert service.of("finished")[0]["epochs_done"] in (7, 8)  # with the epoch in flight
    assert scripts.result() == {"progress_percent": 7.5}


def test_script_that_posts_nothing_is_one_epoch_of_its_run_time(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("note:began", "await:end")
    scripts.until_there("began")

    scripts.allow("end")

    assert worker.wait(PATIENCE_S) == 0
    (epoch,) = service.of("epoch")
    (formed,) = service.of("formed")
    assert (epoch["epoch"], service.of("declared")[0]["epochs"]) == (1, 1)
    assert formed["at"] < (scripts.gates / "began").stat().st_mtime  # none of it is its start
    assert epoch["at"] - formed["at"] == pytest.approx(epoch["epoch_s"], abs=0.05)
    assert scripts.result() == {"progress_percent": None}
    assert script.NO_PROGRESS in scripts.log()


def test_silent_script_that_declares_one_epoch_is_not_mentioned_again(
    scripts: ScriptCrew, service: Service
) -> None:
    code = scripts.end("loss=0.5", epochs=1)

    assert code == 0
    assert epochs_of(service.of("epoch")) == [1]
    assert service.of("declared") == []
    assert script.NO_PROGRESS not in scripts.log()


def test_script_that_fails_is_told_by_its_exit_code(scripts: ScriptCrew, service: Service) -> None:
    code = scripts.end("10", "exit:3")

    assert code == RAISED
    assert service.of("failed")[0]["error"].endswith("exit code 3")
    assert "Traceback" not in scripts.log()


def test_command_that_is_not_there_fails_at_once(scripts: ScriptCrew, service: Service) -> None:
    arguments = json.dumps({"command": ["no-such-program"]})

    code = scripts.run("run_script", environ={"LAXITY_PARAMETERS": arguments})

    assert code == 1
    assert "cannot start 'no-such-program'" in service.of("failed")[0]["error"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("kill -9 $$", "ended by SIGKILL: killed from outside, often by the memory limit"),
        ("kill -40 $$", "ended by signal 40"),
        ("exit 130", "exit code 130 (SIGINT: interrupted)"),  # as of a shell whose python was
        ("exit 168", "exit code 168"),
    ],
)
def test_script_that_a_signal_ends_is_told_by_the_signal(
    scripts: ScriptCrew, service: Service, command: str, told: str
) -> None:
    arguments = json.dumps({"command": ["sh", "-c", command]})

    code = scripts.run("run_script", environ={"LAXITY_PARAMETERS": arguments})

    assert code == RAISED
    assert service.of("failed")[0]["error"].endswith(told)


def test_work_after_100_per_cent_is_the_finishing_part(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("50", "100", "note:trained", "await:exported")
    scripts.until_there("trained")
    service.until_reported("epoch", epoch=100)
    assert worker.poll() is None
    assert service.of("finished") == []

    scripts.allow("exported")

    assert worker.wait(PATIENCE_S) == 0
    assert service.of("finished")[0]["finishing_s"] > 0


@pytest.mark.parametrize("steps", ["100", "note:saved"], ids=["posts 100 %", "exits 0"])
def test_script_told_to_stop_is_not_finished_by_what_it_does_then(
    scripts: ScriptCrew, service: Service, steps: str
) -> None:
    worker = scripts.begin(f"term:{steps}", "40", "await:never")
    service.until_reported("epoch", epoch=40)

    service.order(stop=True)

    service.until_reported("parked", epoch=40)
    assert worker.poll() is None
    worker.terminate()
    assert worker.wait(PATIENCE_S) == STOPPED
    assert service.of("finished") == []


def test_script_whose_steps_are_done_when_it_is_told_to_stop_has_finished(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("term:8/8", "4/8", "await:never")
    service.until_reported("epoch", epoch=50)

    service.order(stop=True)

    assert worker.wait(PATIENCE_S) == 0
    assert service.of("finished")[0]["epochs_done"] == 100


def test_script_that_dies_of_the_stop_with_its_steps_done_has_not_failed(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("term:8/8,exit:9", "4/8", "await:never")
    service.until_reported("epoch", epoch=50)
    service.order(stop=True)
    assert worker.wait(PATIENCE_S) == RESTART

    service.order(stop=False)
    code = scripts.end("8/8", "note:exported", resumes=True)

    assert code == 0
    assert service.of("failed") == []
    assert service.of("finished")[0]["epochs_done"] == 100


def test_script_that_resumes_goes_on_with_its_arguments(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("40", "await:never", resumes=True, resume_args=["unused"])
    service.until_reported("epoch", epoch=40)
    worker.terminate()
    assert worker.wait(PATIENCE_S) == STOPPED

    code = scripts.begin("0", "42", "44", "await:go", "note:none", "100", resumes=True)
    scripts.allow("go")

    assert code.wait(PATIENCE_S) == 0
    assert epochs_of(service.of("epoch")) == list(range(1, 101))
    assert service.of("resumed")[0]["epoch"] == 40


def test_start_after_a_stop_gets_the_resume_arguments(
    scripts: ScriptCrew, service: Service
) -> None:
    arguments = ["note:resumed", "100"]
    worker = scripts.begin("40", "await:go", resumes=True, resume_args=arguments)
    service.until_reported("epoch", epoch=40)
    worker.send_signal(signal.SIGKILL)
    worker.wait(PATIENCE_S)
    assert not (scripts.gates / "resumed").exists()

    scripts.allow("go")
    code = scripts.end("41", "await:go", resumes=True, resume_args=arguments)

    assert code == 0
    assert (scripts.gates / "resumed").exists()


def test_script_that_begins_at_zero_after_a_stop_is_told_and_counted_anew(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("40", "await:never", resumes=True)
    service.until_reported("epoch", epoch=40)
    worker.terminate()
    worker.wait(PATIENCE_S)

    code = scripts.end("0", "2", "4", "100", resumes=True)

    assert code == 0
    assert epochs_of(service.of("epoch"))[40:] == list(range(1, 101))
    assert {line.get("holds_state") for line in service.of("epoch")[40:]} == {False}
    assert script.NOT_RESUMED in scripts.log()


def test_sigterm_reaches_all_that_the_script_has_started(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("leave:saved", "term:note:told", "10", "await:never")
    service.until_reported("epoch", epoch=10)

    worker.terminate()

    assert worker.wait(PATIENCE_S) == STOPPED
    assert (scripts.gates / "told").exists()
    assert (scripts.gates / "saved").exists()


def test_script_that_ignores_sigterm_is_killed_after_its_grace(
    scripts: ScriptCrew, service: Service
) -> None:
    worker = scripts.begin("term:await:never", "10", "await:never", grace_s=1)
    service.until_reported("epoch", epoch=10)

    worker.terminate()

    assert worker.wait(30) == STOPPED


def test_launched_scripts_have_ranks_and_worker_0_counts(
    scripts: ScriptCrew, service: Service
) -> None:
    service.order(workers=2)
    workers = scripts.begin_two("note:up-{RANK}-of-{WORLD_SIZE}", "lead:50", "await:go", "lead:100")
    service.until_reported("epoch", epoch=50, width=2)
    scripts.until_there("up-0-of-2")
    scripts.until_there("up-1-of-2")

    scripts.allow("go")

    assert [worker.wait(PATIENCE_S) for worker in workers] == [0, 0]
    assert epochs_of(service.of("epoch")) == list(range(1, 101))


def test_launched_accelerate_script_trains_one_model_as_one_process_does(
    scripts: ScriptCrew, service: Service
) -> None:
    alone = seen_alone(scripts.gates)
    service.order(workers=2)

    command = [sys.executable, str(ACCELERATE), str(scripts.gates)]
    environ = {"LAXITY_PARAMETERS": json.dumps({"command": command}), "LAXITY_LAUNCHER": "torch"}
    workers = [scripts.start("run_script", index=index, environ=environ) for index in (0, 1)]

    codes = [worker.wait(PATIENCE_S) for worker in workers]
    assert codes == [0, 0], scripts.log() + scripts.log(1)
    assert_one_model(alone, scripts.gates)


def test_launched_scripts_are_told_to_stop_together(scripts: ScriptCrew, service: Service) -> None:
    service.order(workers=2)
    workers = scripts.begin_two(
        "term:note:saved-{RANK}", "lead:40", "note:up-{RANK}", "await:never"
    )
    service.until_reported("epoch", epoch=40)
    scripts.until_there("up-1")

    service.order(stop=True)

    service.until_reported("parked", epoch=40)
    scripts.until_there("saved-0")
    scripts.until_there("saved-1")
    for worker in workers:
        worker.terminate()
    assert [worker.wait(PATIENCE_S) for worker in workers] == [STOPPED, STOPPED]


def test_launched_script_is_ended_by_sigterm_where_a_worker_joins(
    scripts: ScriptCrew, service: Service
) -> None:
    steps = (
        "term:note:saved-{WORLD_SIZE}",
        "lead:40",
        "note:up-{RANK}-of-{WORLD_SIZE}",
        "await:go",
    )
    options: Any = {"resumes": True, "launcher": "torch"}
    first = scripts.begin(*steps, "lead:100", index=0, **options)
    scripts.until_there("up-0-of-1")
    service.until_reported("epoch", epoch=40)

    second = scripts.begin(*steps, "lead:100", index=1, **options)
    service.order(workers=2)

    scripts.until_there("saved-1")
    scripts.until_there("up-1-of-2")
    scripts.allow("go")
    assert [worker.wait(PATIENCE_S) for worker in (first, second)] == [0, 0]
    assert epochs_of(service.of("epoch")) == list(range(1, 101))
