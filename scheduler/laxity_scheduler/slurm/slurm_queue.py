"""A chain's queue where the cluster is a Slurm: its commands, and the notes in the chain's folder."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from laxity_scheduler.following.chain_folder import hold_chain, open_chain, read_script
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.link_outcome import outcome_of_lost, outcome_of_row
from laxity_scheduler.following.link_queue import (
    LinkOutcome,
    QueueError,
    QueueRefusalError,
    QueueRow,
)
from laxity_scheduler.slurm.link_script import (
    holds_lock,
    read_directives,
    read_exit_code,
    read_started_job,
    write_link_script,
)
from laxity_scheduler.slurm.slurm_client import SlurmClient, require_slurm

LONG_AGO: Final = "now-365days"
A_DAY: Final = ("-a", "-S", "now-1days")


def whole_minutes(limit_s: float) -> int:
    """As sbatch takes time limits; 0: none is given."""
    return max(1, round(limit_s / 60)) if limit_s else 0


class SlurmQueue:
    """A LinkQueue. `limit_min` 0 leaves the time limit to the script."""

    def __init__(
        self, client: SlurmClient, state: ChainState, folder: Path, limit_min: int = 0
    ) -> None:
        self._client, self._state, self._folder = client, state, folder
        self._options = (f"--time={limit_min}",) if limit_min else ()

    def clock_at(self) -> float:
        return self._client.controller_at()

    def rows(self) -> list[QueueRow]:
        return self._client.queue()

    def past_rows(self) -> tuple[list[QueueRow], str]:
        try:
            return self._client.ask_accounting(*A_DAY), "sacct"
        except QueueError:
            return [], ""

    def jobs_of(self, link: LinkRecord) -> list[QueueRow]:
        return self._client.jobs_of_name(self._state.job_name(link))

    def row_of_ended(self, link: LinkRecord) -> QueueRow | None:
        try:
            rows = self._client.ask_accounting("-j", link.job_id)
        except QueueRefusalError:
            return None
        return next((row for row in rows if row.job_id == link.job_id), None)

    def outcome(self, link: LinkRecord, row: QueueRow | None) -> LinkOutcome:
        exit_code = read_exit_code(self._folder, link)
        if row is None:
            has_started = self.find_started_job(link) == link.job_id or link.started_at is not None
            return outcome_of_lost(exit_code, has_started=has_started)
        slurm_code = row.exit_code
        if slurm_code is None and row.state == "FAILED":
            slurm_code = self._client.exit_code(row.job_id)
        return outcome_of_row(row, exit_code if slurm_code is None else slurm_code)

    def find_started_job(self, link: LinkRecord) -> str:
        """By its own note, else by the accounting database."""
        return read_started_job(self._folder, link) or self._find_accounted_job(link)

    def _find_accounted_job(self, link: LinkRecord) -> str:
        name = self._state.job_name(link)
        try:
            rows = self._client.ask_accounting("-S", LONG_AGO, "--name", name)
        except QueueRefusalError:
            return ""
        ids = (row.job_id for row in rows if row.has_started and row.job_id not in link.lost_ids)
        return next(ids, "")

    def trains(self, link: LinkRecord) -> bool:
        return holds_lock(self._folder, link)

    def is_complete(self) -> bool:
        return (self._folder / "done").exists()

    def submit(self, link: LinkRecord) -> str:
        name = self._state.job_name(link)
        script = write_link_script(self._state, link, self._folder)
        return self._client.submit(
            script, f"--job-name={name}", f"--comment={name}", *self._options
        )

    def estimate_start(self) -> float | None:
        """None if Slurm would refuse the script: submitting it then says why."""
        try:
            return self._client.ask_planned_start(self._folder / "script", *self._options)
        except QueueRefusalError:
            return None

    def cancel(self, job_ids: Iterable[str]) -> None:
        self._client.cancel(job_ids)


@contextmanager
def open_slurm_queue(
    script: Path, folder: Path, limit_s: float
) -> Iterator[tuple[ChainState, SlurmQueue]]:
    """The chain of a batch script, and its queue. ValueError if the script cannot be a link."""
    text, _ = read_script(script, read_directives)
    require_slurm()
    with hold_chain(folder) as descriptor:
        state = open_chain(text, folder)
        client = SlurmClient(descriptor, state.submit_dir)
        yield state, SlurmQueue(client, state, folder, whole_minutes(limit_s))
