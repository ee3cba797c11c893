"""What a chain reads from a real accounting database: slurmdbd over MariaDB."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_scheduler.following.chain_folder import open_chain
from laxity_scheduler.following.chain_loop import ChainLoop, ChainOptions
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.queue_watch import QueueWatch
from laxity_scheduler.slurm.slurm_queue import SlurmQueue
from tests.support.slurm import NO_ACCOUNTING, SlurmCluster, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(NO_ACCOUNTING), reason=NO_ACCOUNTING)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path / "slurm", nodes=1, has_accounting=True)
    try:
        cluster.up()
        monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        yield cluster
    finally:
        cluster.down()


def accounted(cluster: SlurmCluster, job_id: str) -> str:
    """The state of a job that has ended, by the database."""
    state = cluster.ask("sacct", "-n", "-X", "-P", "-j", job_id, "-o", "State,End").strip()
    return "" if state.endswith("|Unknown") else state.partition("|")[0]


def submit(cluster: SlurmCluster, *options: str) -> str:
    return cluster.ask("sbatch", "--parsable", "--time=1", "--output=/dev/null", *options).strip()


def test_the_database_tells_how_a_link_ended_that_slurm_has_forgotten_and_what_jobs_waited(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    state = ChainState("abc")
    names = [f"--job-name={state.job_name(LinkRecord(seq))}" for seq in (1, 2, 3)]
    well = submit(cluster, names[0], "--wrap=true")
    badly = submit(cluster, names[1], "--wrap=exit 3")
    held = submit(cluster, names[2], "--hold", "--wrap=true")
    cluster.ask("scancel", held)
    jobs = (well, badly, held)
    until(lambda: all(accounted(cluster, job_id) for job_id in jobs), "all ends in the database")
    since = ("sacct", "-n", "-X", "-P", "-S", "now-1days", "-o", "JobIDRaw")
    until(lambda: {well, badly} <= set(cluster.ask(*since).split()), "when they were eligible")
    cluster.forget_jobs()
    queue = SlurmQueue(state, tmp_path)
    links = [LinkRecord(seq, job_id) for seq, job_id in enumerate((well, badly, held), start=1)]

    assert cluster.jobs() == []
    rows = [queue.jobs_of(link) for link in links]
    outcomes = [queue.outcome(link, row) for link, (row,) in zip(links, rows, strict=True)]
    assert [(outcome.meaning, outcome.words) for outcome in outcomes] == [
        ("goes on", "ended with exit code 0"),
        ("failed", "failed with exit code 3"),
        ("cancelled", "was cancelled before it started"),
    ]
    assert [queue.jobs_of(LinkRecord(seq)) for seq in (1, 2, 3)] == [*rows[:2], []]
    facts = QueueWatch(queue, tmp_path).look()
    assert (facts.waits_from, facts.mean_wait_s) == ("sacct", 0.0)


def test_a_chain_that_was_away_until_slurm_forgot_its_links_goes_on(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    script, folder = tmp_path / "train.sbatch", tmp_path / "chain"
    script.write_text("#!/bin/bash\n#SBATCH --time=1 --output=/dev/null\nexit 7\n")
    state = open_chain(script.read_text(), folder)
    queue = SlurmQueue(state, folder)
    options = ChainOptions("reactive", 0.1, most_links=2)
    ChainLoop(state, folder, queue, options, print).step()
    first = state.links[0].job_id
    until(lambda: accounted(cluster, first), "the first link has ended")
    cluster.forget_jobs()
    shutil.rmtree(folder / "links")  # its own notes are gone as well
    (folder / "links").mkdir()

    loop = ChainLoop(state, folder, queue, options, print)

    def has_ended() -> bool:
        loop.step()
        return bool(state.ended)

    until(has_ended, "the chain ends")

    assert state.ended == "capped"
    assert [link.outcome for link in state.links] == ["ended with exit code 7"] * 2
