"""`laxity run` against a real service: scripts that know nothing of laxity, under deadlines."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_service import LocalService, local_service
from tests.support.manifests import indexed_job, train_template
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[2] / "flows/examples/frameworks"
CURL = str(EXAMPLES / "train.sh")
TRAINER = EXAMPLES / "transformers_script.py"
SILENT = "no progress was reported"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with local_service(tmp_path_factory.mktemp("live"), slots=1, OMP_NUM_THREADS="1") as started:
        yield started


def run(live: LocalService, *arguments: str) -> str:
    """What `laxity run` printed, of a job that has ended well."""
    done = live.laxity("run", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_script_that_only_calls_curl_is_promised_at_its_second_run(live: LocalService) -> None:
    run(live, "--class", "soft", "--deadline", "5m", "--model", "curl", "--", "bash", CURL, "8")

    output = run(live, "--deadline", "5m", "--model", "curl", "--", "bash", CURL, "8")

    assert "it was promised" in output
    assert "100 of 100" in output
    assert SILENT not in output


def test_script_that_resumes_makes_room_and_goes_on(live: LocalService, tmp_path: Path) -> None:
    folder = f'cd {tmp_path} && exec bash {CURL} 40 "$@"'
    command = ("--", "bash", "-c", folder, "train")
    run(
        live, "--class", "best_effort", "--name", "patient", "--no-follow",
        "--resume-args=--resume", "--grace", "5", *command,
    )  # fmt: skip
    live.until("patient", lambda job: job.epochs_done >= 20)

    urgent = run(live, "--deadline", "25s", "--estimate", "4s", "--", "bash", CURL, "8")

    assert "it was promised" in urgent
    patient = live.ended("patient")
    assert (patient.state, patient.preemptions, patient.epochs_done) == ("finished", 1, 100)
    starts = [workers for _, workers in patient.width_history]
    assert starts == [1, 0, 1, 0]
    assert int((tmp_path / "state").read_text()) >= 8


def test_job_whose_container_has_its_own_command_is_heard_makes_room_and_goes_on(
    live: LocalService, tmp_path: Path
) -> None:
    """As on Kubernetes, with kubectl: nothing of laxity runs beside the command."""

    def submit(name: str, model: str, command: str, **said: str) -> None:
        template = train_template(command=["bash", "-c", f"cd {tmp_path} && exec bash {command}"])
        live.client.submit(indexed_job(name, template, {"model": model, **said}))

    submit("first", "own", f"{CURL} 8", **{"class": "soft", "deadline": "5m"})
    assert live.ended("first").epochs_done == 100
    submit("stays", "long", f"{CURL} 40 --resume", **{"class": "best_effort", "resumes": "true"})
    live.until("stays", lambda job: job.epochs_done >= 20)

    submit("hurries", "own", f"{CURL} 8", deadline="25s")

    hurries, stays = live.ended("hurries"), live.ended("stays")
    assert (hurries.verdict, hurries.epochs) == ("promised", 100)
    assert (stays.state, stays.preemptions, stays.epochs_done) == ("finished", 1, 100)
    assert int((tmp_path / "state").read_text()) >= 8


def test_script_that_posts_nothing_is_predicted_by_its_run_time(live: LocalService) -> None:
    asked = ("--class", "soft", "--deadline", "5m", "--model", "silent", "--", "sleep", "3")
    first = run(live, *asked)

    second = run(live, *asked)

    assert SILENT in first
    assert SILENT not in second
    job = max(live.client.jobs(), key=lambda row: row.submitted_at or 0.0)
    assert (job.epochs, job.epochs_done) == (1, 1)
    assert job.first_run_s is not None
    assert 2 < job.first_run_s < 30


def test_script_that_fails_ends_the_command_with_1(live: LocalService) -> None:
    failed = live.laxity("run", "--class", "soft", "--deadline", "5m", "--restarts", "0", "false")

    assert failed.returncode == 1
    assert "false: exit code 1" in failed.stdout


def test_killed_worker_leaves_no_script_behind(live: LocalService, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    count = f"echo $$ >> {note}; sleep 600 & echo $! >> {note}; wait"
    run(
        live,
        "--class",
        "soft",
        "--deadline",
        "5m",
        "--name",
        "left",
        "--no-follow",
        "bash",
        "-c",
        count,
    )
    until(lambda: note.exists() and len(note.read_text().split()) == 2, "the script runs")
    first, child = (int(pid) for pid in note.read_text().split())
    worker = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])

    os.kill(worker, signal.SIGKILL)

    until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in (first, child)), "they have ended"
    )
    live.laxity("cancel", "left")


def test_transformers_script_without_a_changed_line_is_promised(
    live: LocalService, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    command = (
        "--",
        sys.executable,
        str(TRAINER),
        "--max_steps",
        "300",
        "--output_dir",
        str(tmp_path),
    )
    code = TRAINER.read_text().rpartition('"""')[2]
    assert "laxity" not in code
    first = run(live, "--class", "soft", "--deadline", "10m", "--model", "gpt", *command)
    assert "100 of 100" in first

    second = run(live, "--deadline", "10m", "--model", "gpt", *command)

    assert "it was promised" in second
    assert "train_loss" in second
