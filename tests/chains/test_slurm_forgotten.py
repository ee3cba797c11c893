"""A job that a crashed controller has forgotten, while its link trains on."""

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from laxity_scheduler.following.chain_folder import open_chain
from laxity_scheduler.following.chain_loop import ChainLoop, ChainOptions
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.slurm.link_script import holds_lock, read_exit_code, write_link_script
from laxity_scheduler.slurm.slurm_queue import SlurmQueue
from tests.support.slurm import until

PROGRAMS: Final = {
    "squeue": "",
    "scontrol": 'echo "Configuration data as of 0"',
    "sacct": 'echo "Slurm accounting storage is disabled" >&2; exit 1',
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of a Slurm that knows of no job, and has no accounting database."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    for name, text in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.usefixtures("programs")
def test_a_forgotten_job_counts_as_running_while_it_holds_the_lock(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.sbatch", tmp_path / "chain"
    script.write_text("#!/bin/bash\nwhile [ ! -e $LAXITY_CHAIN_FOLDER/go ]; do sleep 0.05; done\n")
    state = open_chain(script.read_text(), folder)
    link = LinkRecord(1, job_id="9", started_at=0.0)
    state.links.append(link)
    path = write_link_script(state, link, folder)
    queue = SlurmQueue(state, folder)
    loop = ChainLoop(state, folder, queue, ChainOptions("reactive", 1.0, 1), print)
    with subprocess.Popen(["bash", str(path)], env={**os.environ, "SLURM_JOB_ID": "9"}) as job:
        until(lambda: holds_lock(folder, link), "the link trains")

        loop.step()
        outcome = link.outcome

        (folder / "go").touch()
        assert job.wait(timeout=120) == 0
    assert outcome == ""
    loop.step()
    assert link.outcome == "ended with exit code 0"
    assert state.ended == "capped"


@pytest.mark.usefixtures("programs")
def test_a_forgotten_job_that_died_ends_the_chain_and_says_so(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.sbatch", tmp_path / "chain"
    script.write_text("#!/bin/bash\nkill -9 $PPID\n")
    state = open_chain(script.read_text(), folder)
    link = LinkRecord(1, job_id="9", started_at=0.0)
    state.links.append(link)
    path = write_link_script(state, link, folder)
    queue = SlurmQueue(state, folder)
    loop = ChainLoop(state, folder, queue, ChainOptions("reactive", 1.0), print)
    job = ["bash", str(path)]
    subprocess.run(job, env={**os.environ, "SLURM_JOB_ID": "9"}, check=False, timeout=120)
    until(lambda: not holds_lock(folder, link), "the script has ended as well")

    loop.step()

    assert state.ended == "failed"
    assert state.reason == (
        "link 1 (job 9) is no longer known to Slurm, and wrote down no exit code"
    )


def test_a_link_that_answers_the_queues_end_of_it_with_a_failure_does_not_stop_the_next(
    tmp_path: Path,
) -> None:
    script, folder = tmp_path / "train.sbatch", tmp_path / "chain"
    script.write_text(
        "#!/bin/bash\ncd $LAXITY_CHAIN_FOLDER\n[ ! -e ran ] || exit 0\ntrap 'exit 1' TERM\n"
        "touch ran\nwhile :; do sleep 0.05; done\n"
    )
    state = open_chain(script.read_text(), folder)
    first, second = (
        ["bash", str(write_link_script(state, LinkRecord(seq), folder))] for seq in (1, 2)
    )
    with subprocess.Popen(first, env={**os.environ, "SLURM_JOB_ID": "8"}) as job:
        until((folder / "ran").exists, "the first link trains")
        job.terminate()
        assert job.wait(timeout=120) == 1

    again = subprocess.run(second, env={**os.environ, "SLURM_JOB_ID": "9"}, check=False)

    assert again.returncode == 0
    assert read_exit_code(folder, LinkRecord(2, "9")) == 0


def test_what_a_link_noted_before_it_was_queued_again_is_forgotten(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.sbatch", tmp_path / "chain"
    script.write_text("#!/bin/bash\n[ ! -e ran ] || kill -9 $PPID\ntouch ran\nexit 7\n")
    state, link = open_chain(script.read_text(), folder), LinkRecord(1, "9")
    job = ["bash", str(write_link_script(state, link, folder))]
    environment = {**os.environ, "SLURM_JOB_ID": "9"}

    subprocess.run(job, env=environment, check=False, cwd=tmp_path)
    assert read_exit_code(folder, link) == 7
    subprocess.run(job, env=environment, check=False, cwd=tmp_path)

    assert read_exit_code(folder, link) is None


@pytest.mark.parametrize(
    ("where", "jobs"),
    [
        pytest.param("PENDING|1|Unknown|Unknown|1|1|None assigned|0:0", [], id="it waits there"),
        pytest.param("RUNNING|1|2|Unknown|1|1|n1|0:0", ["9"], id="it runs there"),
        pytest.param("CANCELLED|1|Unknown|3|1|1|None assigned|0:0", ["9"], id="cancelled"),
    ],
)
def test_a_job_that_only_the_database_knows_is_there_unless_it_only_waits_there(
    tmp_path: Path, programs: Path, where: str, jobs: list[str]
) -> None:
    (programs / "sacct").write_text(f"#!/bin/sh\necho '9|{where}|laxity-chain:abc:1'\n")
    queue = SlurmQueue(ChainState("abc"), tmp_path)

    for link in (LinkRecord(1), LinkRecord(1, job_id="9")):
        assert [row.job_id for row in queue.jobs_of(link)] == jobs
