"""A job that a crashed controller has forgotten, while its link trains on."""

import os
import subprocess
from pathlib import Path

from laxity_scheduler.following.chain_folder import open_chain
from laxity_scheduler.following.chain_loop import ChainLoop, ChainOptions
from laxity_scheduler.following.chain_state import LinkRecord
from laxity_scheduler.following.link_queue import QueueRefusalError, QueueRow
from laxity_scheduler.slurm.link_script import holds_lock, write_link_script
from laxity_scheduler.slurm.slurm_client import SlurmClient
from laxity_scheduler.slurm.slurm_queue import SlurmQueue
from tests.support.slurm import until


class ForgetfulSlurm(SlurmClient):
    """Knows of no job, and has no accounting database."""

    def jobs_of_name(self, name: str) -> list[QueueRow]:
        return []

    def queue(self) -> list[QueueRow]:
        return []

    def controller_at(self) -> float:
        return 0.0

    def ask_accounting(self, *options: str) -> list[QueueRow]:
        raise QueueRefusalError("Slurm accounting storage is disabled")


def test_a_forgotten_job_counts_as_running_while_it_holds_the_lock(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.sbatch", tmp_path / "chain"
    script.write_text("#!/bin/bash\nwhile [ ! -e $LAXITY_CHAIN_FOLDER/go ]; do sleep 0.05; done\n")
    state = open_chain(script.read_text(), folder)
    link = LinkRecord(1, job_id="9", started_at=0.0)
    state.links.append(link)
    path = write_link_script(state, link, folder)
    queue = SlurmQueue(ForgetfulSlurm(), state, folder)
    loop = ChainLoop(state, folder, queue, ChainOptions("reactive", 1.0, 1), print)
    with subprocess.Popen(["bash", str(path)], env={**os.environ, "SLURM_JOB_ID": "9"}) as job:
        until(lambda: holds_lock(folder, link), "the link trains")

        loop.step()
        outcome = link.outcome

        (folder / "go").touch()
        assert job.wait(timeout=30) == 0
    assert outcome == ""
    loop.step()
    assert link.outcome == "ended with exit code 0"
    assert state.ended == "capped"


def test_a_forgotten_job_that_died_ends_the_chain_and_says_so(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.sbatch", tmp_path / "chain"
    script.write_text("#!/bin/bash\nkill -9 $PPID\n")
    state = open_chain(script.read_text(), folder)
    link = LinkRecord(1, job_id="9", started_at=0.0)
    state.links.append(link)
    path = write_link_script(state, link, folder)
    queue = SlurmQueue(ForgetfulSlurm(), state, folder)
    loop = ChainLoop(state, folder, queue, ChainOptions("reactive", 1.0), print)
    job = ["bash", str(path)]
    subprocess.run(job, env={**os.environ, "SLURM_JOB_ID": "9"}, check=False, timeout=30)
    until(lambda: not holds_lock(folder, link), "the script has ended as well")

    loop.step()

    assert state.ended == "failed"
    assert state.reason == (
        "link 1 (job 9) is no longer known to Slurm, and wrote down no exit code"
    )
