"""Messages on their way to one sink: MLflow, Prefect or a webhook. No sink can hold up the loop.

Each sink has a thread and a bounded queue of its own, with one message per job: a newer one is
combined with the one that waits.

- A message that fails is retried after a pause that grows; messages about other jobs go on.
- When messages about two jobs fail in a row, the sink counts as down: everything waits, with
  growing pauses.
- `NotYetError` means that this message is too early. It is retried, and others go on.
- When the queue is full, the message that has waited longest is dropped.

What was delivered is remembered with the job (`on_delivered`). A service that is killed before
delivery sends the message after its restart; one that has delivered it does not send it again.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final, Protocol

from laxity.backoff import Backoff
from laxity.safe_text import without_secrets
from laxity_scheduler.notifications.message import Message

LOG: Final = logging.getLogger(__name__)
RETRY_S: Final = 2.0
MAX_WAITING: Final = 10_000
FAILS: Final = 2  # so often in a row, and its end does not wait for another try


class NotYetError(Exception):
    """This message cannot be delivered yet, others can."""


class Sink(Protocol):
    """Where messages go. `deliver` may raise anything; it is tried again."""

    name: str

    def deliver(self, message: Message) -> None: ...


class Outbox:
    """Delivers messages to one sink, in a thread of its own."""

    def __init__(
        self,
        sink: Sink,
        *,
        on_delivered: Callable[[Message], None] = lambda _message: None,
        backoff: Backoff = Backoff(first_s=1.0, longest_s=60.0),  # noqa: B008 - frozen
        retry_s: float = RETRY_S,
    ) -> None:
        self._sink = sink
        self._on_delivered = on_delivered
        self._backoff = backoff
        self._retry_s = retry_s
        self._waiting: OrderedDict[str, Message] = OrderedDict()
        self._due_at: dict[str, float] = {}  # of messages to retry, by uid
        self._failures: dict[str, int] = {}  # in a row, by uid
        self._failed_last = ""  # the uid of the last message, if it failed
        self._changed = Condition()
        self._busy = False
        self._is_resting = False  # the sink is down: nothing is tried for a while
        self._failed_in_a_row = 0
        self._ending = False
        self.dropped = 0
        self.problem = ""  # why the last message was not delivered
        self._thread = Thread(target=self._run_loop, name=f"laxity-tell-{sink.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        with self._changed:
            return len(self._waiting) + self._busy

    def send(self, message: Message) -> None:
        """Queue a message; returns at once."""
        uid = message.uid
        with self._changed:
            before = self._waiting.pop(uid, None)
            self._waiting[uid] = message if before is None else before.combine(message)
            while len(self._waiting) > MAX_WAITING:
                dropped, _ = self._waiting.popitem(last=False)
                self._due_at.pop(dropped, None)
                self.dropped += 1
            self._changed.notify_all()

    def wait_until_empty(self, *, at_most_s: float) -> bool:
        """Wait until every message is delivered; whether that happened in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._waiting or self._busy), timeout=at_most_s
            )

    def close(self, *, at_most_s: float = 5.0) -> None:
        """Deliver what can be delivered in this time, and end the thread.

        A sink that failed twice in a row is not waited for: the rest is told after a restart.
        """
        with self._changed:
            self._changed.wait_for(self._has_done_what_it_can, timeout=at_most_s)
            self._ending = True
            self._changed.notify_all()
        self._thread.join(timeout=at_most_s)

    def _has_done_what_it_can(self) -> bool:
        """Whether nothing waits, or the sink fails and nothing is due before the next retry."""
        if self._busy or self._failed_in_a_row < FAILS:
            return not (self._busy or self._waiting)
        return self._is_resting or self._due_at.keys() >= self._waiting.keys()

    def _run_loop(self) -> None:
        failures = 0
        while (message := self._next_message()) is not None:
            try:
                self._sink.deliver(message)
            except NotYetError as error:
                LOG.debug("%s is told later: %s", self._sink.name, error)
                self._set_aside(message, self._retry_s)
                continue
            except Exception as error:  # noqa: BLE001 - whatever a sink raises, the message is retried
                job, sink = message.job_id, self._sink.name
                LOG.warning("%s was not told of %s: %s", sink, job, error, extra={"job": job})
                self.problem = without_secrets(str(error)) or type(error).__name__
                self._failed_in_a_row += 1
                if self._is_sink_down(message):
                    failures += 1
                    self._retry_after(message, self._backoff.delay_s(failures))
                continue
            failures, self.problem, self._failed_in_a_row = 0, "", 0
            self._failures.pop(message.uid, None)
            self._failed_last = ""
            self._notify_delivered(message)
            self._mark_idle()

    def _is_sink_down(self, message: Message) -> bool:
        """Whether the message before failed too, about another job; if not, only this one waits."""
        uid, before = message.uid, self._failed_last
        self._failed_last = uid
        if before and before != uid:
            return True
        self._failures[uid] = self._failures.get(uid, 0) + 1
        self._set_aside(message, self._backoff.delay_s(self._failures[uid]))
        return False

    def _notify_delivered(self, message: Message) -> None:
        """Report the delivery; the thread survives whatever that raises."""
        try:
            self._on_delivered(message)
        except Exception:
            job, sink = message.job_id, self._sink.name
            LOG.exception("that %s was told of %s is forgotten", sink, job, extra={"job": job})

    def _next_message(self) -> Message | None:
        with self._changed:
            while not self._ending:
                now = time.monotonic()
                due = (uid for uid in self._waiting if self._due_at.get(uid, now) <= now)
                if (uid := next(due, None)) is not None:
                    self._busy = True
                    self._due_at.pop(uid, None)
                    return self._waiting.pop(uid)
                self._changed.wait(min(self._due_at.values()) - now if self._due_at else None)
        return None

    def _retry_after(self, message: Message, pause_s: float) -> None:
        with self._changed:
            self._is_resting = True
            self._put_back(message)
            self._changed.wait_for(lambda: self._ending, timeout=pause_s)
            self._is_resting = False

    def _set_aside(self, message: Message, seconds: float) -> None:
        with self._changed:
            self._due_at[message.uid] = time.monotonic() + seconds
            self._put_back(message)

    def _put_back(self, message: Message) -> None:
        uid = message.uid
        later = self._waiting.pop(uid, None)
        self._waiting[uid] = message if later is None else message.combine(later)
        self._mark_idle()

    def _mark_idle(self) -> None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
