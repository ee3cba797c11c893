"""Instants are the same whichever time zone a command of Slurm takes for its own."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from laxity_lab.batch_queue.log_formats import load_queue_log
from laxity_scheduler.following.chain_folder import open_chain
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.link_queue import QueueRefusalError
from laxity_scheduler.slurm.slurm_queue import SlurmQueue
from tests.support.slurm import NO_ACCOUNTING, WHY_NOT, SlurmCluster, until

FORGED: Final = (
    "UPDATE test_job_table SET time_submit={at}-600, time_eligible={at}-600, time_start={at}, "
    "time_end={at}+2400 WHERE id_job={job}"
)
THIS_YEAR: Final = datetime.now(UTC).year
SCRIPT: Final = "#!/bin/bash\n#SBATCH --time=1 --output=/dev/null\nsleep 30\n"
EXPORT: Final = "JobID,Submit,Start,End,TimelimitRaw,NNodes"


def twice(year: int) -> tuple[int, int]:
    """Both instants at which it is 02:30 in Berlin on the day on which that year's summer ends."""
    last = datetime(year, 10, 31, 0, 30, tzinfo=UTC)
    summer_s = int((last - timedelta(days=last.isoweekday() % 7)).timestamp())
    return summer_s, summer_s + 3_600


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is in Berlin, and Slurm's commands are in Tokyo."""
    folder = tmp_path / "tokyo"
    folder.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scontrol"):
        program = shutil.which(name)
        (folder / name).write_text(f'#!/bin/sh\nTZ=Asia/Tokyo exec {program} "$@"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_time_of_day_is_an_error_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "1|RUNNING|2027-10-31T02:30:00|2027-10-31T02:30:00|N/A|1:00|1|n1"
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '{line}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(
        QueueRefusalError, match=r"'2027-.* is no time in seconds: .* SLURM_TIME_FORMAT"
    ):
        SlurmQueue(ChainState("abc"), tmp_path).rows()


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.usefixtures("elsewhere")
def test_a_command_in_another_zone_tells_the_same_instants(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    state, link = open_chain(SCRIPT, tmp_path / "chain"), LinkRecord(1)
    queue, before_at = SlurmQueue(state, tmp_path / "chain"), int(time.time())
    queue.submit(link)
    until(lambda: queue.jobs_of(link)[0].has_started, "the job runs")

    (row,) = queue.rows()
    after_at = time.time()

    assert row.submitted_at is not None
    assert row.started_at is not None
    assert before_at <= row.submitted_at <= row.started_at <= after_at
    assert before_at <= queue.clock_at() <= time.time()
    for planned_at in twice(THIS_YEAR + 1):
        begin = f"#SBATCH --begin=now+{planned_at - int(time.time())}\nsleep"
        (tmp_path / "chain" / "script").write_text(SCRIPT.replace("sleep", begin))
        start_at = queue.estimate_start()
        assert start_at is not None
        assert abs(start_at - planned_at) <= 70.0


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_ACCOUNTING), reason=NO_ACCOUNTING)
@pytest.mark.usefixtures("elsewhere")
def test_the_hour_that_is_there_twice_is_told_apart_by_sacct_and_in_an_exported_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = SlurmCluster(tmp_path / "slurm", nodes=1, has_accounting=True)
    try:
        slurm.up()
        monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
        submit = ("sbatch", "--parsable", "--time=60", "--output=/dev/null", "--wrap=true")
        jobs = {slurm.ask(*submit).strip(): at for at in twice(THIS_YEAR - 1)}
        ended = ("sacct", "-n", "-X", "-P", "-o", "State")
        until(lambda: slurm.ask(*ended).split() == ["COMPLETED"] * 2, "both ends in the database")
        database = ("mariadb", "--no-defaults", f"--socket={slurm.folder}/mariadb.socket")
        for job, at in jobs.items():
            forged = FORGED.format(at=at, job=job)
            subprocess.run([*database, "accounting", "-e", forged], check=True)

        slurm.forget_jobs()
        queue = SlurmQueue(ChainState("abc"), tmp_path)
        rows = [row for job in jobs for row in queue.jobs_of(LinkRecord(1, job))]
        days = ("--starttime", f"{THIS_YEAR - 1}-10-20", "--endtime", f"{THIS_YEAR - 1}-11-02")
        exported = subprocess.run(
            ["sacct", "-a", "-X", "-P", *days, "--format", EXPORT],
            check=True, capture_output=True, text=True,
            env={**slurm.environment, "SLURM_TIME_FORMAT": "%s"},
        ).stdout  # fmt: skip
    finally:
        slurm.down()
    assert {row.job_id: row.started_at for row in rows} == jobs
    (tmp_path / "queue.log").write_text(exported)
    log = load_queue_log(tmp_path / "queue.log", "sacct")
    assert [job.started_at for job in log.jobs] == list(twice(THIS_YEAR - 1))
    assert {job.ended_at - job.started_at for job in log.jobs} == {2_400.0}
