"""A thread that looks at all jobs a few times a second, and those who wait for something to be so."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from laxity.api.client import Client, JobView, ServiceAwayError
from laxity.cli.exit_codes import CommandError

LOOK_S: Final = 0.3

Jobs = Mapping[str, JobView]
OnChange = Callable[[JobView | None, JobView], None]


class StoryError(RuntimeError):
    """Something that the demo shows did not happen in time."""


@dataclass(slots=True)
class JobPoller:
    """The latest view of every job. `on_look` is called after each look, in the watch's thread."""

    client: Client
    check: Callable[[], None]  # raises if the stage has fallen down
    on_look: Callable[[Jobs], None]
    on_change: OnChange
    jobs: dict[str, JobView] = field(default_factory=dict)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _broken: Exception | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._poll_jobs, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10.0)

    def until(self, what: str, so: Callable[[Jobs], bool], *, limit_s: float) -> None:
        """Wait until it is so; StoryError says what did not happen."""
        give_up_at = time.monotonic() + limit_s
        with self._news:
            while not so(self.jobs):
                if self._broken is not None:
                    raise CommandError(str(self._broken)) from self._broken
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    raise StoryError(f"{what}: not within {limit_s:.0f} s")
                self._news.wait(left_s)

    def _poll_jobs(self) -> None:
        while not self._stop.is_set():
            try:
                self.check()
                self._look_once()
            except ServiceAwayError:
                pass  # it is asked again; `check` says if it has died
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                with self._news:
                    self._broken = error
                    self._news.notify_all()
                return
            self._stop.wait(LOOK_S)

    def _look_once(self) -> None:
        jobs = {job.id: job for job in self.client.jobs()}
        with self._news:
            before, self.jobs = self.jobs, jobs
            self._news.notify_all()
        for name, job in jobs.items():
            if before.get(name) != job:
                self.on_change(before.get(name), job)
        self.on_look(jobs)
