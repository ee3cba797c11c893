"""The loop of `laxity chain`: follow the links in the queue, decide, submit.

All that counts is in the chain's folder and in the queue, so the loop may be killed at any
instant and started again. Before a link is submitted the queue is asked for its job.
Durations are counted by a monotonic clock; instants are the queue's.
"""

import math
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laxity.backoff import Backoff
from laxity_scheduler.following import chain_state
from laxity_scheduler.following.chain_state import ChainEvent, ChainState, LinkRecord, save_chain
from laxity_scheduler.following.link_queue import (
    LinkOutcome,
    LinkQueue,
    QueueAwayError,
    QueueError,
    QueueFullError,
    QueueRefusalError,
    QueueRow,
)
from laxity_scheduler.following.queue_clock import QueueClock
from laxity_scheduler.following.queue_watch import QueueWatch
from laxity_scheduler.following.successor_timing import (
    LearnedTiming,
    is_a_day,
    should_submit_successor,
)

POLL_S: Final = 30.0  # at most, between two looks at the links
MOST_JOBS: Final = 2  # for one link: the first, and one more if it was cancelled in the queue
MOST_REFUSALS: Final = 5  # with the predecessor gone
COUNTS: Final = re.compile(r"\d+")  # in a reason: nodes by number, pods by name
DEFERRED: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """`most_links` 0 is no cap. Where `learned` has no day of snapshots yet, `method` decides."""

    method: str
    interval_s: float
    most_links: int = 0
    learned: LearnedTiming | None = None


@contextmanager
def defer_signals() -> Iterator[None]:
    """SIGINT and SIGTERM wait, so that a submission is either noted or not begun.

    The mask is for this thread and for what it starts, such as sbatch. Another thread may take the
    signal all the same, and Python would then handle it here: the handlers only note it.
    """
    taken: list[int] = []

    def note_signal(number: int, _: object) -> None:
        taken.append(number)

    handlers = {number: signal.signal(number, note_signal) for number in DEFERRED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for deferred in taken:
            signal.raise_signal(deferred)


class ChainLoop:
    """One chain; `say` hears each thing that happens, in a sentence."""

    def __init__(
        self,
        state: ChainState,
        folder: Path,
        queue: LinkQueue,
        options: ChainOptions,
        say: Callable[[str], None],
        *,
        clock: QueueClock | None = None,
    ) -> None:
        self.state = state
        self._folder, self._queue, self._options, self._say = folder, queue, options, say
        self._watch = QueueWatch(queue, folder, clock)
        self._poll_s = min(options.interval_s, POLL_S)
        self._backoff = Backoff(self._poll_s, longest_s=600.0)
        self._decides_at = self._submits_at = -1.0
        self._last_trouble = ""
        self._told_reasons: set[tuple[str, str]] = set()  # a job's id, and why it waits

    def run(self) -> None:
        """Until the chain has ended. QueueError if the first link is refused."""
        failures = 0
        while not self.state.ended:
            try:
                self.step()
                failures, self._last_trouble = 0, ""
            except QueueError as error:
                if not self._has_begun and not isinstance(error, QueueAwayError):
                    raise
                failures += 1
                self._complain(str(error))
            if not self.state.ended:
                time.sleep(max(self._poll_s, min(POLL_S, self._backoff.delay_s(failures))))

    @property
    def _has_begun(self) -> bool:
        return bool(self.state.links and self.state.links[0].job_id)

    def step(self) -> None:
        """Look once, and do what follows. QueueError leaves the state as it was before."""
        done = self._queue.is_complete()
        followed = self.state.active
        # The successor's first: where it ended because its predecessor failed, both ends are seen.
        rows = {link.seq: self._queue.jobs_of(link) for link in reversed(followed)}
        for link in followed:
            self._follow(link, rows[link.seq], done=done)
            if self.state.ended:
                return
        active = self.state.active
        if done or self._queue.is_complete():  # since, by a link that has ended now
            self._complete(active)
        elif not active:
            self._go_on()
        elif len(active) == 1 and active[0].started_at is not None and not self._is_capped():
            self._look_ahead(active[0])
        if self._options.learned and not self.state.ended and time.monotonic() >= self._decides_at:
            self._decide(self.state.links[-1], "no successor is to be submitted now")

    def _is_capped(self) -> bool:
        pending = [link for link in self.state.links if link.job_id]
        return 0 < self._options.most_links <= len(pending)

    def _complete(self, active: list[LinkRecord]) -> None:
        """The training is done: a link that trains ends by itself, the others are not needed."""
        needless = active[1:] if active and active[0].started_at is not None else active
        self._queue.cancel(link.job_id for link in needless)
        for link in needless:
            self._end_link(link, "cancelled: the chain is complete")
        if not self.state.active:
            self._end(chain_state.DONE, "the training is done")

    def _go_on(self) -> None:
        """No link waits or runs."""
        if self._is_capped():
            self._end(
                chain_state.CAPPED, f"{len(self.state.links)} links have ended, as --links says"
            )
        elif time.monotonic() >= self._submits_at:
            before = self.state.links[-1] if self.state.links else None
            self._submit("the link before has ended" if before else "the chain begins")

    def _look_ahead(self, link: LinkRecord) -> None:
        now = time.monotonic()
        if not self.state.links[-1].job_id:
            if now >= self._submits_at:
                self._submit("tried again")
            return
        if now < self._decides_at:
            return
        submits, reason = self._decide(link)
        if submits:
            self._submit(reason)

    def _decide(self, link: LinkRecord, nothing: str = "") -> tuple[bool, str]:
        """Look at the queue, decide, and write both down; `nothing` is why there is no decision."""
        self._decides_at = time.monotonic() + self._options.interval_s
        method, learned = self._options.method, self._options.learned
        planned_at = self._queue.estimate_start() if method == "slurm_estimate" else None
        facts = self._watch.look(planned_at, learned.shape if learned else None)
        if facts.jump_s:
            self._tell(
                link, f"the queue's clock has jumped by {facts.jump_s:+.0f} s: waits leave it out"
            )
        snapshots = self._watch.snapshots
        if nothing:
            submits, reason = False, nothing
        elif learned and is_a_day(snapshots):
            submits = learned.should_submit(link, snapshots)
            reason = f"the {learned.provisioner.kind} model"
        else:
            submits, reason = should_submit_successor(method, link.ends_by, facts)
            reason = f"no day of snapshots yet; {reason}" if learned else reason
        self._watch.record(facts, link.seq, submits=submits, reason=reason)
        return submits, reason

    def _submit(self, reason: str) -> None:
        """Submit the next link, unless the queue or the folder shows that this was done before."""
        link = self.state.next_link()
        save_chain(self.state, self._folder)
        if job_id := self._job_of(link):
            self._note_job(link, job_id, "it was submitted before")
            return
        with defer_signals():
            if job_id := self._try_submit(link):
                self._note_job(link, job_id, reason)

    def _note_job(self, link: LinkRecord, job_id: str, reason: str) -> None:
        link.job_id, link.refusals = job_id, 0
        self._submits_at = -1.0
        self._tell(link, f"job {job_id}: {reason}")

    def _job_of(self, link: LinkRecord) -> str:
        """The job that was already submitted for this link, empty if there is none."""
        rows = self._queue.jobs_of(link)
        job_ids = [*(row.job_id for row in rows), self._queue.find_started_job(link)]
        return next((job_id for job_id in job_ids if job_id not in link.lost_ids), "")

    def _try_submit(self, link: LinkRecord) -> str:
        """The job's id; empty where the queue refused it."""
        try:
            return self._queue.submit(link)
        except QueueRefusalError as error:
            self._refuse(link, error)
            return ""

    def _refuse(self, link: LinkRecord, error: QueueRefusalError) -> None:
        """A full queue is asked until it takes the link; another refusal may be final."""
        if link.seq == 1 and not link.lost_ids:
            raise error
        link.refusals += 1
        is_full = isinstance(error, QueueFullError)
        if not is_full and not self.state.active and link.refusals >= MOST_REFUSALS:
            self._end(chain_state.FAILED, f"link {link.seq} was refused: {error}")
            return
        self._submits_at = time.monotonic() + self._backoff.delay_s(link.refusals)
        if not is_full or link.refusals == 1:
            self._tell(link, f"refused, to be tried again: {error}")

    def _follow(self, link: LinkRecord, rows: Sequence[QueueRow], *, done: bool) -> None:
        """Bring one link up to what the queue tells of its jobs."""
        self._queue.cancel(
            row.job_id for row in rows if row.job_id != link.job_id and not row.has_ended
        )
        row = next((row for row in rows if row.job_id == link.job_id), None)
        if row is not None and not row.has_ended:
            self._note_row(link, row)
            return
        if row is None and self._queue.trains(link):
            return  # a controller that crashed has lost the job; it trains all the same
        outcome = self._queue.outcome(link, row)
        if row is not None:
            self._note_row(link, row)
        if outcome.meaning == "goes on" or done:
            self._end_link(link, outcome.words)
            self.state.links[-1].refusals, self._submits_at = 0, -1.0  # one refused is asked anew
        elif outcome.meaning == "cancelled" and link is self.state.links[-1]:
            self._submit_again(link, outcome)
        else:
            self._fail(link, outcome.words)

    def _note_row(self, link: LinkRecord, row: QueueRow) -> None:
        if self._options.learned:
            self._options.learned.provisioner.check_pair(row.nodes, row.time_limit_s, "--model")
        started_before = link.started_at
        link.submitted_at, link.started_at = row.submitted_at, row.started_at
        link.ended_at = row.ended_at if row.has_ended else None
        ends_by = math.inf if row.started_at is None else row.started_at + row.time_limit_s
        link.ends_by = ends_by if math.isfinite(ends_by) else None
        if row.started_at != started_before and not row.has_ended:
            change = "waits again" if row.started_at is None else "started"
            self._tell(link, f"job {link.job_id} {change}")
        self._note_reason(link, row.waits_for)

    def _note_reason(self, link: LinkRecord, words: str) -> None:
        """Tell each reason to wait once, whatever it counts; keep the latest one for --status."""
        before, link.waits_for = link.waits_for, words
        reason = (link.job_id, COUNTS.sub("", words))
        if words and reason not in self._told_reasons:
            self._told_reasons.add(reason)
            self._tell(link, f"job {link.job_id} waits: {words}")
        elif words != before:
            save_chain(self.state, self._folder)

    def _submit_again(self, link: LinkRecord, outcome: LinkOutcome) -> None:
        """A job that was taken out of the queue is submitted once more, in case that was a mistake."""
        if len(link.lost_ids) + 1 >= MOST_JOBS:
            self._fail(link, f"{outcome.words}, for the second time")
            return
        lost_id, link.job_id = link.job_id, ""
        link.lost_ids.append(lost_id)
        link.waits_for, link.submitted_at, link.ended_at = "", None, None
        self._tell(link, f"job {lost_id} {outcome.words}: submitted once more")
        self._submit("the first was cancelled")

    def _end_link(self, link: LinkRecord, words: str) -> None:
        link.outcome = words
        self._tell(link, f"job {link.job_id} {words}")

    def _fail(self, link: LinkRecord, words: str) -> None:
        """End the chain; what waits, or was to follow, leaves the queue."""
        others = [other for other in self.state.active if other is not link]
        others = [other for other in others if other.seq > link.seq or other.started_at is None]
        self._queue.cancel(other.job_id for other in others)
        for other in others:
            place = "before" if other.seq > link.seq else "after"
            self._end_link(other, f"cancelled: the link {place} failed")
        link.outcome = words
        self._end(chain_state.FAILED, f"link {link.seq} (job {link.job_id}) {words}")

    def _tell(self, link: LinkRecord, words: str) -> None:
        self.state.events.append(ChainEvent(time.time(), link.seq, words))
        save_chain(self.state, self._folder)
        self._say(f"link {link.seq}: {words}")

    def _complain(self, words: str) -> None:
        if words != self._last_trouble:
            self._last_trouble = words
            self._say(f"{words}; asked again until it answers")

    def _end(self, ended: str, reason: str) -> None:
        self.state.ended, self.state.reason = ended, reason
        save_chain(self.state, self._folder)
