"""The queue that a chain's links wait in: a Slurm cluster, or Jobs in a Kubernetes namespace.

The loop knows no more of it than this. A link has one job at a time, whose id the queue gives; a
job that was submitted for a link can be asked for again, so that none is submitted twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from laxity_scheduler.following.chain_state import LinkRecord

ENDED: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REVOKED",
        "TIMEOUT",
    }
)
Meaning = Literal["goes on", "cancelled", "failed"]


class QueueError(RuntimeError):
    """The queue gave no answer that helps: one of those below."""


class QueueRefusalError(QueueError):
    """What the queue said when it refused something."""


class QueueFullError(QueueRefusalError):
    """It takes no more jobs for now: others are to end first, or somebody opens it again."""


class QueueAwayError(QueueError):
    """The queue does not answer: nothing is known, ask again later."""


class NoQueueError(QueueError):
    """There is no such queue here: the sentence says what the user can do."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One job as the queue tells it; states are spelled as Slurm spells them.

    A job that waits has no start, whatever is planned for it. `exit_code` is None where the queue
    does not tell it; a job that a signal ended has 128 plus its number. `waits_for` is why it has
    not started, in the queue's words; empty where it does not say.
    """

    job_id: str
    state: str
    name: str
    submitted_at: float | None
    started_at: float | None
    ended_at: float | None
    time_limit_s: float
    nodes: int
    exit_code: int | None = None
    waits_for: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_started(self) -> bool:
        return self.started_at is not None


@dataclass(frozen=True, slots=True)
class LinkOutcome:
    """`cancelled`: it never started, and somebody took it out of the queue."""

    meaning: Meaning
    words: str


class LinkQueue(Protocol):
    """All that waits or runs, what became of a chain's links, and what is done with them.

    Instants are POSIX seconds of the queue's own clock. QueueAwayError where it does not answer,
    QueueRefusalError where it refuses.
    """

    def clock_at(self) -> float: ...

    def rows(self) -> Sequence[QueueRow]:
        """Jobs that wait or run, as far as this user may see them."""

    def past_rows(self) -> tuple[Sequence[QueueRow], str]:
        """Jobs of the last day that have started, and who recorded them; none where nobody did."""

    def jobs_of(self, link: LinkRecord) -> Sequence[QueueRow]:
        """Jobs that were submitted for a link, the first one first.

        Those that the queue remembers; without the link's own among them, what was recorded of it.
        """

    def find_started_job(self, link: LinkRecord) -> str:
        """The job that noted that it runs this link; empty without such a note."""

    def trains(self, link: LinkRecord) -> bool:
        """Whether a job that the queue has forgotten trains all the same."""

    def outcome(self, link: LinkRecord, row: QueueRow | None) -> LinkOutcome:
        """What it means that this job has ended; None: nobody knows of the job any more."""

    def is_complete(self) -> bool:
        """Whether the training is done."""

    def submit(self, link: LinkRecord) -> str:
        """Submit a job for this link; its id. Not asked twice for one that is there."""

    def estimate_start(self) -> float | None:
        """When the queue would start one more link; None where it plans nothing."""

    def cancel(self, job_ids: Iterable[str]) -> None: ...
