"""What became of jobs, told to others: MLflow, a webhook. Nobody who is told can hold up the loop.

Each listener has a thread and a bounded queue of its own. A word that fails is set aside for a while
that grows, and others are told meanwhile; when words about several jobs fail one after the other, the
listener is away and is tried again with growing pauses. The newest word about each job is the first
to be kept when the queue is full. What was
told is remembered with the job, so that a service killed in between tells it after its restart, and
one that told it does not tell it twice. A word whose time has not come (`NotYetError`) is set aside, and
the words about other jobs go on.
"""

import contextlib
import json
import logging
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, Final, Protocol

from laxity_scheduler.service.views import Json

LOG: Final = logging.getLogger(__name__)
LONGEST_PAUSE_S: Final = 60.0
ASIDE_S: Final = 2.0
MOST_WAITING: Final = 10_000
WEBHOOK_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of one job at one epoch, for a chart."""

    epoch: int
    at: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Word:
    """The newest about one job: its view, what happened since the last word, and new points."""

    view: Json
    events: tuple[str, ...] = ()
    points: tuple[Point, ...] = field(default=())

    def then(self, later: "Word") -> "Word":
        """Both in one: the later view, all events and points."""
        return Word(later.view, self.events + later.events, self.points + later.points)


class NotYetError(Exception):
    """This word cannot be told yet, others can."""


class Listener(Protocol):
    """Somebody who is told. `tell` may raise anything; it is tried again."""

    name: str

    def tell(self, word: Word) -> None: ...


class Courier:
    """Brings words to one listener, in a thread of its own, one word per job at a time."""

    def __init__(
        self,
        listener: Listener,
        *,
        told: Callable[[Word], None] = lambda _word: None,
        first_pause_s: float = 1.0,
        aside_s: float = ASIDE_S,
    ) -> None:
        self._listener = listener
        self._told = told
        self._first_pause_s = first_pause_s
        self._aside_s = aside_s
        self._waiting: OrderedDict[str, Word] = OrderedDict()
        self._due_at: dict[str, float] = {}  # of words set aside, by uid
        self._failures: dict[str, int] = {}  # in a row, of words that could not be told, by uid
        self._failed_last = ""  # the uid of the word that failed last, if none was told since
        self._changed = Condition()
        self._busy = False
        self._ending = False
        self.dropped = 0
        self.problem = ""  # why the last word was not told
        self._thread = Thread(target=self._run, name=f"laxity-tell-{listener.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        with self._changed:
            return len(self._waiting) + self._busy

    def send(self, word: Word) -> None:
        """Tell this, sooner or later; returns at once."""
        uid = word.view["uid"]
        with self._changed:
            before = self._waiting.pop(uid, None)
            self._waiting[uid] = word if before is None else before.then(word)
            while len(self._waiting) > MOST_WAITING:
                dropped, _ = self._waiting.popitem(last=False)
                self._due_at.pop(dropped, None)
                self.dropped += 1
            self._changed.notify_all()

    def drain(self, *, at_most_s: float) -> bool:
        """Wait until everything is told; whether it is."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._waiting or self._busy), timeout=at_most_s
            )

    def close(self, *, at_most_s: float = 5.0) -> None:
        """Tell what can still be told in this time, and end."""
        self.drain(at_most_s=at_most_s)
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join(timeout=at_most_s)

    def _run(self) -> None:
        pause_s = self._first_pause_s
        while (word := self._next()) is not None:
            try:
                self._listener.tell(word)
            except NotYetError as error:
                LOG.debug("%s is told later: %s", self._listener.name, error)
                self._set_aside(word, self._aside_s)
                continue
            except Exception as error:  # noqa: BLE001 - whatever a listener raises, it is told later
                job, who = _job(word), self._listener.name
                LOG.warning("%s was not told of %s: %s", who, job, error, extra={"job": job})
                self.problem = str(error) or type(error).__name__
                if self._is_away(word):
                    self._again(word, pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            pause_s, self.problem = self._first_pause_s, ""
            self._failures.pop(word.view["uid"], None)
            self._failed_last = ""
            self._remember(word)
            self._done()

    def _is_away(self, word: Word) -> bool:
        """Whether the word before failed as well, of another job; else only this one waits."""
        uid, before = word.view["uid"], self._failed_last
        self._failed_last = uid
        if before and before != uid:
            return True
        self._failures[uid] = self._failures.get(uid, 0) + 1
        grown_s = self._first_pause_s * 2.0 ** min(self._failures[uid] - 1, 10)
        self._set_aside(word, min(grown_s, LONGEST_PAUSE_S))
        return False

    def _remember(self, word: Word) -> None:
        """That it was told; the thread outlives whatever that raises."""
        try:
            self._told(word)
        except Exception:
            job, who = _job(word), self._listener.name
            LOG.exception("that %s was told of %s is forgotten", who, job, extra={"job": job})

    def _next(self) -> Word | None:
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

    def _again(self, word: Word, pause_s: float) -> None:
        with self._changed:
            self._put_back(word)
            self._changed.wait_for(lambda: self._ending, timeout=pause_s)

    def _set_aside(self, word: Word, seconds: float) -> None:
        with self._changed:
            self._due_at[word.view["uid"]] = time.monotonic() + seconds
            self._put_back(word)

    def _put_back(self, word: Word) -> None:
        uid = word.view["uid"]
        later = self._waiting.pop(uid, None)
        self._waiting[uid] = word if later is None else word.then(later)
        self._done()

    def _done(self) -> None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()


def _job(word: Word) -> str:
    return str(word.view.get("id") or word.view["uid"])


class Webhook:
    """Posts each event of a job as JSON to one address."""

    name = "webhook"

    def __init__(self, url: str) -> None:
        self._url = url

    def tell(self, word: Word) -> None:
        if not word.events:
            return
        body = json.dumps(
            {"events": list(word.events), "at": time.time(), "job": word.view}, default=str
        ).encode()
        request = urllib.request.Request(  # noqa: S310 - the operator's own address
            self._url, data=body, headers={"Content-Type": "application/json"}, method="POST"
        )
        with contextlib.closing(urllib.request.urlopen(request, timeout=WEBHOOK_S)):  # noqa: S310
            pass


def events_between(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    """What a person wants to be told of, once per change."""
    return tuple(_events(before or {}, after))


def _events(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if after["verdict"] != "none" and after["verdict"] != before.get("verdict"):
        yield after["verdict"]
    elif after["verdict"] == "promised" and _moved(before, after):
        yield "promise_moved"
    if after.get("danger") and not before.get("danger"):
        yield "promise_in_danger"
    if after["broken"] and not before.get("broken"):
        yield "promise_broken"
    if after["outcome"] and after["outcome"] != before.get("outcome") != "refused":
        yield f"ended_{after['outcome']}"


def _moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Another deadline, or another promised finish by more than a second."""
    for name in ("deadline_at", "promised_p90_at"):
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and abs(new - old) > 1.0:
            return True
    return False


def digest(view: Mapping[str, Any]) -> str:
    """What is told of a job, in a line: equal lines need no telling."""
    said: Sequence[Any] = [
        view[name]
        for name in ("verdict", "reason_code", "deadline_at", "outcome", "broken", "finished_at")
    ]
    return json.dumps(said)
