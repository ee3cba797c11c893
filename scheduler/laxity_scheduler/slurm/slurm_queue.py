"""A chain's queue where the cluster is a Slurm.

Its own commands are asked, and the notes that links leave in the chain's folder: a Slurm forgets
jobs that have ended. Where it has an accounting database, that one is asked for those.
"""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from laxity_scheduler.following.chain_folder import hold_chain, open_chain, read_script
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.link_outcome import outcome_of_code, outcome_of_row
from laxity_scheduler.following.link_queue import (
    LinkOutcome,
    QueueAwayError,
    QueueError,
    QueueRefusalError,
    QueueRow,
)
from laxity_scheduler.slurm.link_script import (
    holds_lock,
    read_directives,
    read_exit_code,
    read_started_job,
    refuse_variables,
    write_link_script,
)
from laxity_scheduler.slurm.slurm_call import ask_slurm, require_slurm, run_slurm
from laxity_scheduler.slurm.slurm_tables import (
    OWN_FORMAT,
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    parse_controller_time,
    parse_job_exit_code,
    parse_job_id,
    parse_output_path,
    parse_own_jobs,
    parse_planned_start,
    parse_requeue_exits,
    parse_sacct,
    parse_squeue,
)

ACTIVE: Final = "PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING"
LONG_AGO: Final = "now-365days"
NO_OUTPUT: Final = 128 + 53  # Slurm's signal where it cannot open a job's files
T = TypeVar("T")


def whole_minutes(limit_s: float) -> int:
    """The time limit in minutes, as sbatch takes it; 0: none is given."""
    return max(1, round(limit_s / 60)) if limit_s else 0


class SlurmQueue:
    """A LinkQueue; `limit_s` is how long each link may run, 0 leaves that to the script.

    `lock` is inherited by sbatch: it is held until sbatch has ended, even when this process is
    killed meanwhile.
    """

    def __init__(
        self, state: ChainState, folder: Path, limit_s: float = 0.0, lock: int | None = None
    ) -> None:
        self._state, self._folder = state, folder
        self._options = (f"--time={whole_minutes(limit_s)}",) if limit_s else ()
        self._locks = () if lock is None else (lock,)

    def clock_at(self) -> float:
        """The controller's clock, against which its starts and ends are to be read."""
        return ask_slurm(parse_controller_time, "scontrol", "show", "config")

    def rows(self) -> list[QueueRow]:
        return ask_slurm(parse_squeue, "squeue", "-h", "-o", SQUEUE_FORMAT, "-t", ACTIVE)

    def past_rows(self) -> tuple[list[QueueRow], str]:
        try:
            return _ask_sacct("-a", "-S", "now-1days"), "sacct"
        except QueueError:
            return [], ""

    def jobs_of(self, link: LinkRecord) -> list[QueueRow]:
        name = self._state.job_name(link)
        of_name = ("-t", "all", "-u", str(os.getuid()), "--name", name)
        rows = ask_slurm(parse_own_jobs, "squeue", "-h", "-o", OWN_FORMAT, *of_name)
        rows = sorted((row for row in rows if row.name == name), key=lambda row: int(row.job_id))
        if any(link.job_id in ("", row.job_id) for row in rows):
            return rows
        return rows + self._accounted_jobs(link)

    def find_started_job(self, link: LinkRecord) -> str:
        return read_started_job(self._folder, link)

    def trains(self, link: LinkRecord) -> bool:
        return holds_lock(self._folder, link)

    def outcome(self, link: LinkRecord, row: QueueRow | None) -> LinkOutcome:
        exit_code = read_exit_code(self._folder, link)
        if row is not None:
            slurm_code = row.exit_code
            if slurm_code is None and row.state == "FAILED":
                slurm_code = self._ask_job(parse_job_exit_code, row.job_id)
            outcome = outcome_of_row(row, exit_code if slurm_code is None else slurm_code)
            return self._name_output(link, slurm_code, outcome)
        if exit_code is not None:
            return outcome_of_code(exit_code)
        if link.started_at is None and self.find_started_job(link) != link.job_id:
            return LinkOutcome("cancelled", "is no longer in the queue and never started")
        return LinkOutcome("failed", "is no longer known to Slurm, and wrote down no exit code")

    def is_complete(self) -> bool:
        return (self._folder / "done").exists()

    def submit(self, link: LinkRecord) -> str:
        name = self._state.job_name(link)
        requeued: list[int] = []
        with suppress(QueueError):  # what keeps scontrol from it, sbatch says better
            requeued = ask_slurm(parse_requeue_exits, "scontrol", "show", "config")
        script = write_link_script(self._state, link, self._folder, requeued)
        command = ("sbatch", "--parsable", f"--job-name={name}", f"--comment={name}")
        output = run_slurm(
            *(*command, *self._options, str(script)),
            pass_fds=self._locks,
            cwd=self._state.submit_dir,
        )
        try:
            return parse_job_id(output)
        except ValueError as error:  # there may be a job: the queue is asked for it first
            raise QueueAwayError(str(error)) from error

    def estimate_start(self) -> float | None:
        """None if Slurm would refuse the script, too: submitting it then says why."""
        command = ("sbatch", "--test-only", *self._options, str(self._folder / "script"))
        try:
            return ask_slurm(parse_planned_start, *command, stderr=subprocess.STDOUT)
        except QueueRefusalError:
            return None

    def cancel(self, job_ids: Iterable[str]) -> None:
        if ids := list(job_ids):
            ask_slurm(str, "scancel", *ids)

    def _accounted_jobs(self, link: LinkRecord) -> list[QueueRow]:
        """The link's job, before it has one all that ever had its name; none without a database.

        One that only waits there was lost by a controller that crashed.
        """
        of_name = ("-S", LONG_AGO, "--name", self._state.job_name(link))
        try:
            rows = _ask_sacct(*(("-j", link.job_id) if link.job_id else of_name))
        except QueueRefusalError:
            return []
        return [row for row in rows if row.has_started or row.has_ended]

    def _name_output(self, link: LinkRecord, code: int | None, outcome: LinkOutcome) -> LinkOutcome:
        """Of a link that Slurm could not begin, since it could not open the job's output file."""
        if code != NO_OUTPUT or self.find_started_job(link) == link.job_id:
            return outcome
        path = self._ask_job(parse_output_path, link.job_id) or "its output file"
        words = f"did not begin: Slurm could not open {path}; make its folder on the nodes"
        return LinkOutcome("failed", f"{words}, or change --output")

    def _ask_job(self, parse: Callable[[str], T], job_id: str) -> T | None:
        """None where Slurm has forgotten the job meanwhile."""
        try:
            return ask_slurm(parse, "scontrol", "show", "job", job_id)
        except QueueRefusalError:
            return None


def _ask_sacct(*options: str) -> list[QueueRow]:
    """QueueRefusalError where the cluster has no accounting database."""
    return ask_slurm(parse_sacct, "sacct", "-n", "-P", "-X", "--format", SACCT_FIELDS, *options)


@contextmanager
def open_slurm_queue(
    script: Path, folder: Path, limit_s: float
) -> Iterator[tuple[ChainState, SlurmQueue]]:
    """The chain of a batch script, and its queue. ValueError if the script cannot be a link."""
    text, _ = read_script(script, read_directives)
    refuse_variables(os.environ)
    require_slurm()
    with hold_chain(folder) as lock:
        state = open_chain(text, folder)
        yield state, SlurmQueue(state, folder, limit_s, lock)
