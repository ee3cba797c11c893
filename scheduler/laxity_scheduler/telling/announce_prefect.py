"""Flow runs of a Prefect work pool, told what became of their Jobs while they have no pod.

Where the flow run itself is the Job, Prefect hears of it from the pod alone: a refused one, which
never gets a pod, would be Pending for ever. So the service says it: a refusal ends the run Failed,
by the name Refused, with the reason and the counter-offers, as `DeadlineRefused` does where a flow follows its job; one
that is accepted later is Pending again and goes on; one that waits is Pending by the name of its
verdict, with the reason. A run whose Job is gone or failed for good is Cancelled or Crashed, unless
its pod has said better. Each change is a line in the run's log, too, and the verdict and the progress
are artifacts on its page.

Nothing here makes a second Job: workers take up Scheduled runs only, and neither Pending nor a
Failed that follows on Pending is retried by Prefect (its rule for retries starts from Running).
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from laxity.api.outcome import (
    DeadlineRefused,
    TrainingCancelled,
    TrainingFailed,
    instant,
    standing_text,
)
from laxity.api.views import JobView, job_view
from laxity_scheduler.service.views import ENDED, Json
from laxity_scheduler.telling.announce import NotYetError, Word
from laxity_scheduler.telling.prefect_api import PrefectApi, PrefectError, flow_run_of
from laxity_scheduler.telling.prefect_artifacts import Artifacts, page_of

LOG: Final = logging.getLogger(__name__)
REFUSED: Final = "DeadlineRefused: "  # so begins the message of a run that we ended
WAITS: Final = {"promised": "Promised", "forecast": "Waiting"}
TERMINAL: Final = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
STOPPED: Final = "suspended"
WARNINGS: Final = frozenset({"refused", "promise_in_danger", "promise_broken", "ended_failed"})
LONGEST_MESSAGE: Final = 4_000
LOOKS: Final = 6  # for a run to name its Job, as far apart as words are set aside: about 10 s


@dataclass(frozen=True, slots=True)
class Wish:
    """The state that a flow run should have: Prefect's type, the name people see, why."""

    kind: str
    name: str
    message: str

    def fits(self, kind: str, message: str) -> bool:
        """Whether a run in this state may be put into the wished one: its pod's word comes first."""
        if self.kind == "FAILED":
            return kind in {"SCHEDULED", "PENDING"}
        if self.kind == "PENDING":
            return kind == "PENDING" or (kind == "FAILED" and message.startswith(REFUSED))
        return kind not in TERMINAL


class PrefectRuns:
    """Tells Prefect. A run that is no longer there, or has ended otherwise, is left alone."""

    name = "prefect"

    def __init__(self, api: PrefectApi) -> None:
        self._api = api
        self._artifacts = Artifacts(api)
        self._pages: dict[str, str] = {}  # by uid: what its artifacts were last written for
        self._told: dict[str, tuple[str, Wish | None]] = {}  # by uid: the job's state, the wish
        self._logged: dict[str, tuple[str, ...]] = {}
        self._looks = Counter[str]()  # by uid, in vain

    def tell(self, word: Word) -> None:
        view, run_id = word.view, flow_run_of(word.view)
        uid, state, wish = view["uid"], view["state"], wish_of(view)
        before, wished = self._told.get(uid, ("", None))
        stopped = (STOPPED,) if state == STOPPED != before else ()
        page = page_of(view) if run_id else ""
        is_known = (state, wish, page) == (before, wished, self._pages.get(uid))
        if not run_id or (not word.events and is_known):
            return
        events, news = (*word.events, *stopped), wish if wish != wished else None
        try:
            self._say(run_id, events, news, view)
        except PrefectError as error:
            if not error.for_good:
                raise
            about = {"job": view["id"]}
            LOG.warning(
                "flow run %s of %s was not told: %s", run_id, view["id"], error, extra=about
            )
        self._told[uid], self._pages[uid] = (state, wish), page
        self._logged.pop(uid, None)
        if state in ENDED:
            self._told.pop(uid)
            self._pages.pop(uid)
            self._looks.pop(uid, None)

    def _say(self, run_id: str, events: tuple[str, ...], wish: Wish | None, view: Json) -> None:
        run = self._api.ask("GET", f"/flow_runs/{run_id}")
        if not self._is_its_own(run, view):
            return
        self._log(run_id, view["uid"], events, view)
        if wish is not None:
            self._put(run, wish)
        self._artifacts.write(run_id, view)

    def _is_its_own(self, run: Json, view: Json) -> bool:
        """Whether the run names this Job, too. NotYetError while it may be about to."""
        uid, found = view["uid"], run.get("infrastructure_pid")
        if runs_as(run, view["id"]):
            self._looks.pop(uid, None)
            return True
        self._looks[uid] += 1
        words = f"flow run {run['id']} runs as {found or 'nothing yet'}, not as {view['id']}"
        if self._looks[uid] < LOOKS:
            raise NotYetError(words)
        LOG.warning("%s: it is not told", words, extra={"job": view["id"]})
        return False

    def _log(self, run_id: str, uid: str, events: tuple[str, ...], view: Json) -> None:
        """Once, also if what follows fails and all is told again."""
        if events and self._logged.get(uid) != events:
            self._api.ask("POST", "/logs/", list(_lines(run_id, events, view)))
            self._logged[uid] = events

    def _put(self, run: Json, wish: Wish) -> None:
        state = run.get("state") or {}
        kind, message = str(state.get("type")), str(state.get("message") or "")
        if (kind, message) == (wish.kind, wish.message) or not wish.fits(kind, message):
            return
        wished = {"type": wish.kind, "name": wish.name, "message": wish.message}
        self._api.ask("POST", f"/flow_runs/{run['id']}/set_state", {"state": wished})


def runs_as(run: Mapping[str, Any], job_id: str) -> bool:
    """Whether this flow run's infrastructure is that Job.

    prefect-kubernetes writes "<namespace>:<Job>"; older ones put a cluster's uid in front, which
    is not compared: laxity may not read what Prefect takes it from.
    """
    found = str(run.get("infrastructure_pid") or "").split(":")
    return len(found) in (2, 3) and found[-2:] == job_id.split("/", 1)


def wish_of(view: Json) -> Wish | None:
    """What the flow run of this job should be; None where that is its pod's to say."""
    job = job_view(view)
    if job.state == "refused":
        return _wish("FAILED", "Refused", f"{REFUSED}{DeadlineRefused(job)}")
    if job.state == "cancelled" and not view.get("released"):
        return _wish("CANCELLED", "Cancelled", str(TrainingCancelled(job)))
    if job.state == "failed":
        return _wish("CRASHED", "Crashed", str(TrainingFailed(job)))
    if job.state in {"queued", "running"} and job.verdict in WAITS:
        return _wish("PENDING", WAITS[job.verdict], _waiting(job))
    return None


def _wish(kind: str, name: str, message: str) -> Wish:
    return Wish(kind, name, message[:LONGEST_MESSAGE])


def _waiting(job: JobView) -> str:
    """What was said to it, why it waits, and until when as far as that is known."""
    if job.state == "running":
        return f"{job.id}: {job.verdict}: its pods start"
    return f"{job.id}: {job.verdict}: {_figures(job)}"


def _figures(job: JobView) -> str:
    known = {
        "promised for": job.deadline_at if job.verdict == "promised" else None,
        "P90 finish": job.p90_at,
        "expected start": job.expected_start_at,
    }
    figures = [f"{words} {instant(at)}" for words, at in known.items() if at is not None]
    return "; ".join([job.reason, *figures])


def _lines(run_id: str, events: Iterable[str], view: Mapping[str, Any]) -> Iterable[Json]:
    job = job_view(view)
    for event in events:
        if event == "ended_refused":
            continue  # said with the refusal
        words = _words(event, job)
        yield {
            "name": "laxity",
            "level": logging.WARNING if event in WARNINGS else logging.INFO,
            "message": f"{event}: {words}"[:LONGEST_MESSAGE],
            "timestamp": datetime.now(UTC).isoformat(),
            "flow_run_id": run_id,
        }


def _words(event: str, job: JobView) -> str:
    """What a line of the log says of an event: figures, and after the end how it ended."""
    if event == "refused":
        return str(DeadlineRefused(job))
    if job.state == "cancelled":
        return str(TrainingCancelled(job))
    if job.state == "failed":
        return str(TrainingFailed(job))
    if job.state == "finished":
        return f"{job.id}: {standing_text(job)}"
    return f"{job.id}: {_figures(job)}"
