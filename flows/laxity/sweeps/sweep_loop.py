"""One client drives a sweep: it starts trials as jobs, follows them, and tells the study.

Nothing is kept here that is not also with the study or the jobs. So a client that is killed and run
again finds its trials, attaches to those that run, and goes on.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from laxity import names
from laxity.api.client import Client, ServiceError
from laxity.api.job_follower import PAUSE_S, is_transient
from laxity.api.job_view import TERMINAL_STATES, JobView, job_view
from laxity.api.status_text import TrainingFailed
from laxity.flow.declaration import Declaration
from laxity.flow.project import Project
from laxity.instants import format_instant
from laxity.job.pod_template import escape_literal
from laxity.job.spec import TrainingSpec
from laxity.stderr import say
from laxity.sweeps.result import SweepFailed, SweepResult, best_of
from laxity.sweeps.trial_plan import SweepState, TrialTime, count_starts, promise_text
from laxity.sweeps.trials import NOT_STARTED, SweepRecord, SweepTrial, Trials
from laxity.worker.trial import ENDED, VALUE

T = TypeVar("T")
UNKNOWN: Final = "unknown_model_needs_profiling"
TOO_SLOW: Final = "deadline_before_fastest_finish"
MOST_MISFITS: Final = 3  # trials in a row that would not be in time: the sweep starts no more
MOST_FAILURES: Final = 3  # failed trials before any has ended well
LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class TrialJobs:
    """How the trials of a sweep become jobs."""

    declared: Declaration
    project: Project
    record: SweepRecord
    group: str
    is_moved: bool = False  # its deadline, by what the client declares now

    @property
    def least_workers(self) -> int:
        widths = self.declared.qos.widths
        return widths[0] if widths else 1

    @property
    def gpus_each(self) -> int:
        """Of a trial that has not grown."""
        return self.declared.qos.gpus_per_worker * self.least_workers

    @property
    def group_id(self) -> str:
        return f"{self.declared.said.get('namespace') or 'default'}/{self.group}"

    def declaration(self, promise: str = "") -> dict[str, Any]:
        """The group of the jobs, as the service takes it."""
        verdict, _, reason = promise.partition(": ")
        namespace = self.group_id.partition("/")[0]
        due = format_instant(datetime.fromtimestamp(self.record.deadline_at, UTC))
        return {
            "name": self.group,
            "namespace": namespace,
            "kind": "sweep",
            "workflow": self.declared.model,
            "class": self.declared.qos.service_class,
            "deadline": due,
            "verdict": verdict,
            "reason": reason,
        }

    def spec(
        self, trials: Trials, trial: SweepTrial, service_class: str | None = None
    ) -> TrainingSpec:
        """The job of one trial, under the deadline of the sweep."""
        due = datetime.fromtimestamp(self.record.deadline_at, UTC)
        options: dict[str, Any] = {"deadline": due}
        if service_class is not None:
            options["service_class"] = service_class
        terms = trials.terms(trial, self.record.deadline_at).to_json()
        spec = self.declared.with_changes(**options).spec(
            entry=self.project.entry,
            parameters=trial.parameters,
            idempotency_key=f"sweep/{self.record.uid}/{trial.number}",
            env={**self.project.env, names.ENV_TRIAL: escape_literal(terms)},
            workdir=self.project.workdir,
        )
        return replace(spec, group=self.group, step=f"{names.TRIAL}{trial.number}")


class SweepRun:
    """One client's run of a sweep over `wanted` trials."""

    def __init__(self, client: Client, trials: Trials, jobs: TrialJobs, wanted: int) -> None:
        self._client, self._trials, self._jobs, self._wanted = client, trials, jobs, wanted
        self._views: dict[int, JobView] = {}  # of the trials that run
        self._asked: SweepTrial | None = None  # waits for room
        self._whole: TrialTime | None = None
        self._misfits, self._is_away = 0, False
        self._verdict = self._held = ""
        self._standing = (
            -1,
            True,
        )  # trials that had ended when it was told, and whether it was unknown

    def run(self) -> SweepResult:
        """Follow and start trials until no more will come; SweepFailed if none reached full length."""
        document = self._jobs.declaration()
        self._call(lambda: self._client.submit_group(document))
        if self._jobs.is_moved:
            due = str(document["deadline"])
            self._call(lambda: self._client.amend_group(self._jobs.group_id, due))
        say(f"sweep {self._jobs.group}: see laxity show {self._jobs.group}")
        self._find_running()
        while True:
            self._start_trials()
            if not self._views and not self._may_start():
                break
            self._wait()
            self._look()
        if self._asked is not None:
            self._give_up(self._asked, f"{NOT_STARTED}: too late")
        return self._end()

    def _find_running(self) -> None:
        """Attach to what an earlier client has started; of a grid the jobs tell how much that is."""
        known = len(self._call(lambda: self._client.group(self._jobs.group_id))["jobs"])
        while len(self._trials.begun()) < known and self._ask():
            pass
        self._asked = None
        for trial in self._trials.begun():
            view = self._find_job(trial.job) if trial.outcome == "running" else None
            if view is not None:
                self._views[trial.number] = view
            elif trial.outcome == "running" and self._asked is None:
                self._asked = trial
            elif trial.outcome == "running":
                self._submit(trial)
        if self._views:
            say(f"{len(self._views)} trials of the sweep run already: going on with them")

    # --- starting ---

    def _state(self) -> SweepState:
        """Slots count GPUs that are free, and those by which our own trials have grown."""
        gpus_each = self._jobs.gpus_each
        cluster = self._call(self._client.cluster)
        gpus = int(cluster["free_gpus"]) + sum(
            view.workers * self._jobs.declared.qos.gpus_per_worker for view in self._views.values()
        )
        now, begun = time.time(), self._trials.begun()
        return SweepState(
            now,
            self._jobs.record.deadline_at,
            self._wanted,
            gpus // gpus_each,
            self._whole,
            tuple(row.share for row in begun if row.outcome != "running"),
            tuple(now - (view.submitted_at or now) for view in self._views.values()),
            gpus_each,
        )

    def _may_start(self) -> bool:
        """Whether trials are left that could still be in time."""
        state = self._state()
        in_time = state.now < state.deadline_at and not state.is_too_late
        may_ask = not self._trials.is_exhausted and self._misfits < MOST_MISFITS
        return bool(state.left) and in_time and may_ask

    def _start_trials(self) -> None:
        state = self._state()
        for _ in range(count_starts(state)):
            if state.now >= state.deadline_at or not self._start_next():
                break
        self._say_verdict()

    def _start_next(self) -> bool:
        """Start one more; False if none can start now."""
        if self._misfits >= MOST_MISFITS or self._trials.is_exhausted:
            return False
        trial = self._asked or self._ask()
        if trial is None:
            return False
        spec = self._jobs.spec(self._trials, trial)
        if there := self._find_job(spec.id):  # submitted by an earlier client
            self._views[trial.number], self._asked = there, None
            return True
        manifest = spec.to_manifest()
        answer = self._call(lambda: self._client.whatif(manifest))
        if answer["reason_code"] == UNKNOWN:
            self._submit(trial, "soft")  # it is the profile
        elif answer["reason_code"] == TOO_SLOW:
            self._start_late(trial)
        elif answer["verdict"] == "refused" or not (answer["starts_now"] or self._has_grown()):
            self._held = answer.get("waits_reason") or answer["reason"]
            return False
        else:
            self._misfits = 0
            self._note_time(answer)
            self._submit(trial)
        self._asked = None
        return True

    def _ask(self) -> SweepTrial | None:
        """The next trial, known to be of this sweep from now on."""
        self._asked = trial = self._trials.ask()
        if trial is not None:
            self._trials.note_job(trial, self._jobs.spec(self._trials, trial).id)
        return trial

    def _has_grown(self) -> bool:
        """Whether a trial of ours shrinks at its epoch's end where another one waits."""
        return any(view.workers > self._jobs.least_workers for view in self._views.values())

    def _start_late(self, trial: SweepTrial) -> None:
        """Start a trial that is not promised full length in time, but likely to reach it."""
        manifest = self._jobs.spec(self._trials, trial, "soft").to_manifest()
        answer = self._call(lambda: self._client.whatif(manifest))
        self._note_time(answer)
        is_first = not self._count() and not self._views
        if is_first or (answer["p50_at"] or math.inf) > self._jobs.record.deadline_at:
            self._misfits += 1
            self._give_up(trial, f"{NOT_STARTED}: too slow")
        else:
            self._misfits = 0
            self._submit(trial, "soft")

    def _note_time(self, answer: Mapping[str, Any]) -> None:
        p50_at, p90_at, now = answer["p50_at"], answer["p90_at"], answer["checked_at"]
        if p50_at is not None and p90_at is not None:
            self._whole = TrialTime(p50_at - now, p90_at - now)

    def _submit(self, trial: SweepTrial, service_class: str | None = None) -> None:
        spec = self._jobs.spec(self._trials, trial, service_class)
        manifest = spec.to_manifest()
        self._views[trial.number] = self._call(lambda: self._client.submit(manifest))

    def _find_job(self, job: str) -> JobView | None:
        """The job of this id; None if there is none."""
        try:
            return self._call(lambda: self._client.job(job))
        except ServiceError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def _give_up(self, trial: SweepTrial, why: str) -> None:
        self._trials.tell(replace(trial, outcome="failed", note=why))

    # --- following ---

    def _wait(self) -> None:
        """Until something may have changed, a second at most."""
        if not self._views:
            time.sleep(LOOK_S)
            return
        number, view = next(iter(self._views.items()))
        self._views[number] = self._call(
            lambda: self._client.job(view.id, wait_s=LOOK_S, seen=view.revision)
        )

    def _look(self) -> None:
        """Take over what the service says of the group: its deadline, and the jobs that have ended."""
        group = self._call(lambda: self._client.group(self._jobs.group_id))
        if group["state"] == "cancelled":
            self._close("cancelled")
            raise SweepFailed(f"sweep {self._jobs.group} was cancelled", self._trials.begun())
        if group["deadline_at"] != self._jobs.record.deadline_at:
            record = replace(self._jobs.record, deadline_at=group["deadline_at"])
            self._trials.write_record(record)
            self._jobs = replace(self._jobs, record=record)
        views = {row["id"]: row for row in group["jobs"]}
        for number, view in list(self._views.items()):
            now = job_view(views[view.id]) if view.id in views else self._find_job(view.id)
            if now is None or now.state in TERMINAL_STATES:
                del self._views[number]
                self._tell(number, now or replace(view, state="cancelled", reason="it was deleted"))
                continue
            self._views[number] = now
            if not now.workers and time.time() >= self._jobs.record.deadline_at:
                self._call(partial(self._client.cancel, now.id))  # it waits, and would be of no use

    def _tell(self, number: int, view: JobView) -> None:
        trial = next(row for row in self._trials.begun() if row.number == number)
        before = best_of(self._trials.begun(), self._trials.direction)
        self._trials.tell(told := outcome_of(trial, view))
        best = best_of(self._trials.begun(), self._trials.direction)
        if best is not None and best != before:
            say(f"trial {number}: {best.value:.6g}, the best of {self._count()} so far")
        elif told.outcome == "failed":
            say(f"trial {number} {told.note}")
        self._check_failures(view)

    def _count(self) -> int:
        return sum(row.outcome != "running" for row in self._trials.begun())

    def _check_failures(self, view: JobView) -> None:
        """TrainingFailed once several trials have failed and none has ended well."""
        ended = [row.outcome for row in self._trials.begun() if row.outcome != "running"]
        if len(ended) >= MOST_FAILURES and set(ended) == {"failed"}:
            self._close("cancelled")
            raise TrainingFailed(view)

    def _say_verdict(self) -> None:
        """Tell the group its verdict as trials end, and the log one of another kind."""
        standing = self._count(), self._whole is None
        if standing == self._standing:
            return
        self._standing, text = standing, promise_text(self._state())
        if text.partition(":")[0] != self._verdict.partition(":")[0]:
            self._verdict = text
            say(text)
        self._call(lambda: self._client.submit_group(self._jobs.declaration(text)))

    def _end(self) -> SweepResult:
        self._close("finished")
        begun = tuple(self._trials.begun())
        if best_of(begun, self._trials.direction) is None:
            raise SweepFailed(_failure_text(begun, self._verdict, self._held), begun)
        return SweepResult(self._trials.name, self._trials.direction, self._verdict, begun)

    def _close(self, state: str) -> None:
        """The sweep is over; cancelled with the trials that run."""
        self._call(lambda: self._client.end_group(self._jobs.group_id, state))
        for trial in self._trials.begun():
            if trial.outcome == "running":
                self._give_up(trial, "cancelled")
        self._trials.write_record(replace(self._jobs.record, is_over=True))

    def _call(self, ask: Callable[[], T]) -> T:
        """Ask the service until it answers: the trials go on without it."""
        while True:
            try:
                answer = ask()
            except ServiceError as error:
                if not is_transient(error):
                    raise
                if not self._is_away:
                    say(f"{error}; asked again until it answers")
                self._is_away = True
                time.sleep(PAUSE_S)
            else:
                self._is_away = False
                return answer


def outcome_of(trial: SweepTrial, view: JobView) -> SweepTrial:
    """The trial as its job ended."""
    result = view.result if isinstance(view.result, dict) else {}
    value, ended = result.get(VALUE), str(result.get(ENDED) or "")
    share = view.epochs_done / view.epochs if view.epochs else 0.0
    if view.finished_at is not None and view.submitted_at is not None:
        trial = replace(trial, took_s=view.finished_at - view.submitted_at)
    if view.state != "finished":
        why = f"{view.state}: {view.error or view.reason}".rstrip(": ")
        return replace(trial, outcome="failed", note=why, share=share)
    if ended:
        return replace(trial, outcome="pruned", value=value, note=ended, share=share)
    if value is None:
        return replace(trial, outcome="failed", note="failed: its objective is no number")
    return replace(trial, outcome="complete", value=value, share=1.0)


def _failure_text(trials: tuple[SweepTrial, ...], verdict: str, held: str) -> str:
    """Why no trial has reached full length; `held`: why the next one did not start."""
    if not trials:
        why = f"no trial was started before the deadline: {held}".rstrip(": ")
        return verdict if verdict.startswith("refused") else why
    pruned = sum(row.note.startswith("pruned") for row in trials)
    if pruned == len(trials):
        return (
            f"the pruner has ended all {pruned} trials, so none is at full length; let it wait for "
            "more epochs or keep more trials"
        )
    notes = "; ".join(f"trial {row.number} {row.note or row.outcome}" for row in trials[:5])
    return f"none of {len(trials)} trials has reached full length: {notes}"
