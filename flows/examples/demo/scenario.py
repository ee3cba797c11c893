"""The story of the demo, act by act, each with what must have been seen at its end.

No deadline is written here: each is derived from what laxity itself predicts on this machine, so
the same things happen on a fast and on a slow one.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from examples.demo.display import Screen
from examples.demo.job_poller import JobPoller, Jobs, StoryError
from examples.demo.parts import Cast, Part
from examples.demo.processes import DemoProcesses
from laxity.api.client import Client, JobView, ServiceError
from laxity.api.job_view import TERMINAL_STATES
from laxity.cli.render.job_panel import offer_words
from laxity.human_time import format_seconds

LONG_S: Final = 90.0  # for something that takes a few epochs, on a slow and busy machine
SOON_S: Final = 45.0  # for a flow to start and its job to get a verdict
REFUSED_S: Final = 10.0  # for a refused flow to end
END_S: Final = 1200.0  # on a machine that others slow down, too


@dataclass(slots=True)
class Story:
    """Plays the acts; `missed` collects what did not happen."""

    client: Client
    watch: JobPoller
    screen: Screen
    processes: DemoProcesses
    cast: Cast
    epoch_s: float  # about; of any of its jobs on one worker
    parts: list[Part] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    offer_accepted: str = ""  # the job whose counter-offer was taken

    def play(self) -> None:
        """All acts. A step that fails is noted, and the story goes on with the next act."""
        acts: tuple[tuple[str, Callable[[], None]], ...] = (
            ("A model nobody knows is probed first", self.probe),
            ("A deadline is promised", self.promise),
            ("A deadline is refused; its counter-offer is taken", self.refuse),
            ("A promise is moved forward: the job grows, best effort makes room", self.grow),
            ("An urgent job finds room", self.urge),
            ("A soft job is told early that it will be late", self.soft),
            ("Everything comes to its end", self.end),
        )
        for title, act in acts:
            self.screen.play(title)
            with self.note_misses():
                act()

    # --- the acts ---

    def probe(self) -> None:
        """Before anybody has trained this model nothing can be promised on it."""
        probe = self.cast.probe
        answer = self.client.whatif(self.cast.steady.due(600.0).manifest())
        code = answer.get("reason_code")
        self.screen.say(f"whatif {self.cast.steady.name}: {answer.get('verdict')} [{code}]")
        self._expect_change(code == "unknown_model_needs_profiling", "an unknown model is refused")
        for part in (probe, self.cast.overnight, self.cast.sweep):
            self._start_flow(part)
        self._await_job("its end", probe, lambda job: job.state == "finished", LONG_S)

    def promise(self) -> None:
        """So late that one worker is enough: it starts narrow."""
        part = self.cast.steady.due(2.6 * self._soonest_s(self.cast.steady))
        self._start_flow(part)
        self._await_job("a promise", part, lambda job: job.verdict == "promised", SOON_S)
        self._await_job("an epoch", part, lambda job: job.epochs_done >= 1, LONG_S)

    def refuse(self) -> None:
        part = self.cast.rush.due(0.4 * self._soonest_s(self.cast.rush))
        moonshot = self.cast.moonshot.due(20.0)
        self._start_flow(part)
        self._start_flow(moonshot)
        self._await_job("a refusal", part, lambda job: job.state == "refused", SOON_S)
        for number, offer in enumerate(self.watch.jobs[part.id].offers, start=1):
            self.screen.say(f"  offer {number}: {offer_words(offer, time.time())}")
        self._accept_offer(part)
        self._await_job("its start", part, lambda job: job.workers > 0, LONG_S)

    def grow(self) -> None:
        """Ask for the running job's end sooner than its present width allows."""
        steady = self.cast.steady
        self._await_job("it runs on one worker", steady, lambda job: job.formed == 1, LONG_S)
        for share in (0.7, 0.8, 0.9):
            job = self.client.job(steady.id)
            left_s = (job.p90_at or time.time()) - time.time()
            wished = f"{time.time() + share * left_s - (job.submitted_at or 0.0):.1f}s"
            if self.amend_promise(job, wished):
                break
        self._await_job("it trains on two workers", steady, lambda job: job.formed == 2, LONG_S)
        self.watch.until("a best-effort job makes room", self.has_made_room, limit_s=LONG_S)

    def urge(self) -> None:
        part = self.cast.urgent.due(1.2 * self._soonest_s(self.cast.urgent) + 2.0)
        self._start_flow(part)
        self._await_job("a promise", part, lambda job: job.verdict == "promised", SOON_S)

    def soft(self) -> None:
        late = self.cast.late.due(3 * self.epoch_s)
        self._start_flow(late)
        self._await_job("a forecast", late, lambda job: job.verdict == "forecast", SOON_S)

    def end(self) -> None:
        def over(jobs: Jobs) -> bool:
            return all(
                part.id in jobs and jobs[part.id].state in TERMINAL_STATES for part in self.parts
            )

        self.watch.until("all jobs end", over, limit_s=END_S)
        for part in self.parts:
            with suppress(subprocess.TimeoutExpired):
                self.processes.running[part.name].wait(30.0)
        is_kept = self.watch.jobs[self.offer_accepted].kept if self.offer_accepted else None
        self._expect_change(is_kept, "the counter-offer that was taken is kept")

    # --- what the acts are made of ---

    def has_made_room(self, jobs: Jobs) -> bool:
        """Whether a best-effort job was stopped for another one."""
        best_effort = (self.cast.overnight.id, self.cast.sweep.id)
        return any(name in jobs and jobs[name].preemptions for name in best_effort)

    def _start_flow(self, part: Part) -> None:
        """Run the flow, as anybody would, in a process of its own."""
        self.parts = [*[other for other in self.parts if other.name != part.name], part]
        self.screen.labels[part.id] = part.name
        self.processes.start(part.name, part.command())
        due = part.options.get("deadline")
        deadline_text = f"deadline {due} from submission" if due else "no deadline"
        self.screen.say(f"python {part.script().name}   # {part.name}: {deadline_text}")

    def _await_job(
        self, what: str, part: Part, so: Callable[[JobView], bool], limit_s: float
    ) -> None:
        """Wait for something about one job; StoryError with its flow's last words if in vain."""
        try:
            self.watch.until(
                f"{part.name}: {what}",
                lambda jobs: part.id in jobs and so(jobs[part.id]),
                limit_s=limit_s,
            )
        except StoryError as error:
            log_tail = self.processes.tail(part.name, 5)
            raise StoryError(
                f"{error}" + (f"; its flow said: {log_tail}" if log_tail else "")
            ) from error

    def _soonest_s(self, part: Part) -> float:
        """How soon it would be promised if it were submitted now, by laxity's own counter-offer."""
        now = time.time()
        answer = self.client.whatif(part.due(0.5).manifest())
        ends = [
            offer["p90_at"]
            for offer in answer.get("offers") or ()
            if offer.get("kind") == "deadline" and offer.get("p90_at")
        ]
        if not ends:
            raise StoryError(f"whatif offers no deadline for {part.name}: {answer.get('reason')}")
        soonest_s = float(min(ends)) - now
        self.screen.say(f"whatif {part.name}: promised from {format_seconds(soonest_s)} on")
        return soonest_s

    def _accept_offer(self, part: Part) -> None:
        """Take the offered deadline. It was checked, not held: a newer offer may be needed."""
        for _ in range(3):
            offers = self.watch.jobs[part.id].offers
            number = next((n for n, offer in enumerate(offers, 1) if offer.kind == "deadline"), 0)
            self._expect_change(number, "a later deadline is offered")
            self.screen.say(f"laxity accept {part.name} {number}")
            job = self.client.accept(part.id, number)
            if job.verdict == "promised":
                break
        self._await_job("a promise", part, lambda job: job.verdict == "promised", SOON_S)
        self.offer_accepted = part.id
        self._follow_again(part)

    def _follow_again(self, part: Part) -> None:
        """A flow that ended with DeadlineRefused is run again: its key attaches it to the job."""
        with suppress(subprocess.TimeoutExpired):
            self.processes.running[part.name].wait(REFUSED_S)
            self.processes.start(part.name, part.command())
            self.screen.say(f"the flow of {part.name}, run again, attaches to its job")

    def amend_promise(self, job: JobView, deadline: str) -> bool:
        """Whether another deadline was promised; the old promise stands if not."""
        try:
            answer = self.client.amend(job.id, deadline)
        except ServiceError as error:
            self.screen.say(f"laxity amend --deadline {deadline}: {error}")
            return False
        moved = (
            answer.deadline_at is not None and answer.deadline_at < (job.deadline_at or 0.0) - 0.5
        )
        self.screen.say(f"laxity amend --deadline {deadline}: {'promised' if moved else 'refused'}")
        return moved

    def _expect_change(self, so: object, what: str) -> None:
        if not so:
            raise StoryError(f"{what}: it does not")

    @contextmanager
    def note_misses(self) -> Iterator[None]:
        try:
            yield
        except (StoryError, ServiceError) as error:
            self.missed.append(str(error))
            self.screen.say(str(error), style="bold red")
