"""What people and workers ask of a running service, in plain values; HTTP is somebody else's.

Whatever is changed is changed on the Job, the truth, and the loop is woken; the answer is what the
next cycle made of it.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Protocol

import orjson

from laxity import names
from laxity.durations import parse_deadline
from laxity.job.qos import QoSError
from laxity.job.spec import TrainingSpec
from laxity.job.submission import counts_from
from laxity_profiler.estimate import Workload
from laxity_profiler.model_key import model_key
from laxity_scheduler.http.decision_rows import fold_repeats
from laxity_scheduler.http.job_from_manifest import amended, newcomer
from laxity_scheduler.http.responses import Problem
from laxity_scheduler.http.whatif import Answer, answer_json, ask
from laxity_scheduler.live import Released, Signal, UnknownJobError
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import duration
from laxity_scheduler.model.verdict import Promise, Refusal
from laxity_scheduler.service import expected_times
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.offers import instant, probe_of, terms_of
from laxity_scheduler.service.view_cache import shown
from laxity_scheduler.service.views import (
    ENDED,
    Json,
    finite,
    project_view,
    promise_counts,
    verdict_view,
)
from laxity_scheduler.service.views import instant as instant_of
from laxity_scheduler.service.views import job_id as id_of

CHAIN_LENGTH: Final = 200
OPEN_ENDED: Final = {"probe", "soft"}  # offers that ask for no deadline
MOST_FOLDED: Final = 2_000  # rows that are read to be folded into an answer
MOST_ALIKE: Final = 3
MOST_COMPARED: Final = 1_000  # names, letter by letter
LOG: Final = logging.getLogger(__name__)
POLICY_FAILS: Final = (
    "no verdict can be given now, and nothing was changed: the policy fails on this job or beside it; "
    "the service's log says why, and /readyz whether its cycles fail as well"
)


# What the workers were asked for and have not done yet is withdrawn: they would wait for ever.
RELEASED: Final[Mapping[str, str | None]] = {
    names.PIN: "released by its user", names.STOP: None, names.RESIZE_TO: None,
}  # fmt: skip
TAKEN_BACK: Final[Mapping[str, str | None]] = {names.PIN: None}


class ConflictError(RuntimeError):
    """The job's present state does not allow this: what it is, and what would do."""


class Reporting(Protocol):
    """Where report lines go; the number up to which all have been taken comes back."""

    def ingest(
        self, uid: str, job: str, workload: Workload, lines: Sequence[object],
        *, nodes: Sequence[str] = (), since: float = 0.0,
    ) -> int: ...  # fmt: skip


class Desk:
    """Answers for one service."""

    def __init__(self, service: Service, reporting: Reporting) -> None:
        self._service = service
        self._reporting = reporting
        self._world = service.world

    def submit(self, manifest: Mapping[str, Any]) -> tuple[Json, bool]:
        """The view of the new Job, or of the one that its key attaches to; and whether it is new."""
        TrainingSpec.from_manifest(manifest)
        made = self._world.submit(manifest)
        before = self._service.board.by_uid(str(made["metadata"]["uid"]))
        if before is not None and before["state"] not in ENDED:
            made = self._follow_anew(made, manifest)
        view = self._first(made)
        self._world.wake()
        return view, before is None

    def _follow_anew(self, job: Json, manifest: Mapping[str, Any]) -> Json:
        """The Job names the flow run that follows it now: the earlier one may have been killed."""
        metadata = job["metadata"]
        page = (manifest["metadata"].get("annotations") or {}).get(names.FOLLOWED_BY)
        if not page or page == (metadata.get("annotations") or {}).get(names.FOLLOWED_BY):
            return job
        return self._world.annotate(id_of(job), {names.FOLLOWED_BY: page})

    def view(self, job_id: str) -> Json:
        """UnknownJobError if there never was such a job."""
        view = self._service.board.view(job_id)
        if view is None:
            return self._first(self._world.job(job_id))
        return self._shown(view, time.time())

    def details(self, job_id: str) -> Json:
        """The view, with where its workers run and which variables they get; no values of them."""
        try:
            project = project_view(self._world.job(job_id))
        except UnknownJobError:
            return self.view(job_id)
        return self.view(job_id) | {"project": project}

    def views(self, sees: Callable[[str], bool]) -> list[Json]:
        now = time.time()
        return [
            self._shown(view, now)
            for view in self._service.board.all()
            if sees(view["id"].partition("/")[0])
        ]

    def alike(self, job_id: str) -> list[str]:
        """Jobs of the same namespace whose names are much like this one; those it begins first."""
        namespace, slash, wanted = job_id.partition("/")
        ids = self._service.board.uids()
        known = [
            name.removeprefix(f"{namespace}/") for name in ids if name.startswith(f"{namespace}/")
        ]
        longer = [name for name in known if name.startswith(wanted)]
        close = get_close_matches(wanted, known[-MOST_COMPARED:], n=MOST_ALIKE)
        found = dict.fromkeys([*longer, *close])
        return [namespace + slash + name for name in found][:MOST_ALIKE]

    def cancel(self, job_id: str) -> Json:
        """Delete the Job; one that has ended stays as it is."""
        view = self.view(job_id)
        if view["state"] not in ENDED:
            self._world.cancel(job_id)
            self._world.wake()
        return view

    def amend(self, job_id: str, deadline: str) -> Json | None:
        """Ask for another deadline; None says that the Job now asks, and the next cycles answer.

        A refusal beside a standing promise comes back as a view, and nothing is changed.
        """
        row = self._unfinished(job_id)
        said = parse_deadline(deadline)
        due_at = (
            said.timestamp()
            if isinstance(said, datetime)
            else self._counts_from(row) + said.total_seconds()
        )
        answer = self._judged(amended(row, due_at))
        if isinstance(row.verdict, Promise) and isinstance(answer.verdict, Refusal):
            refused = self.view(job_id) | verdict_view(answer.verdict)
            stands = f"{refused['reason']}; the promise that was given stands"
            return refused | {"reason": stands, "amended": False}
        changes = {names.DEADLINE: instant(due_at)}
        if row.service_class == "best_effort":
            changes[names.CLASS] = "hard"
        self._change_terms(job_id, changes)
        return None

    def accept(self, job_id: str, number: int) -> None:
        """Take counter-offer `number` (from 1) of a refused job: it asks again with it."""
        row = self._unfinished(job_id)
        offers = row.verdict.offers if isinstance(row.verdict, Refusal) else ()
        if not offers:
            message = f"{job_id} has no counter-offers: it was not refused"
            raise ConflictError(message)
        if not 1 <= number <= len(offers):
            message = f"{job_id} has offers 1 to {len(offers)}, not {number}"
            raise ConflictError(message)
        offer = offers[number - 1]
        if offer.kind not in OPEN_ENDED and offer.deadline_at <= time.time():
            ago = duration(time.time() - offer.deadline_at)
            message = (
                f"offer {number} of {job_id} expired {ago} ago: ask again with "
                f"laxity amend {job_id} --deadline ..."
            )
            raise ConflictError(message)
        if offer.kind == "probe":
            self._probe(job_id)
        elif offer.kind == "borrow":
            message = (
                f"offer {number} needs {offer.gpus_borrowed} more GPU(s) in the cluster: "
                "add them, then ask again with: laxity amend"
            )
            raise ConflictError(message)
        else:
            self._change_terms(job_id, terms_of(offer))

    def whatif(self, manifest: Mapping[str, Any]) -> Json:
        """The verdict on a manifest, and its effects; nothing is submitted."""
        state, _ = self._service.seen
        self._world.check(manifest)
        now = replace(state, now=max(state.now, time.time()))
        row, (eligible, nodes) = newcomer(manifest, now), self._world.node_set(manifest)
        if eligible:
            row = replace(row, eligible=eligible)
            now = replace(now, sets={**(now.sets or {}), eligible: nodes})
        if row.id in state.by_id:
            row = replace(row, id=f"{row.id}-whatif")
        return answer_json(self._judged(row, now), now, row)

    def explain(self, job_id: str) -> Json:
        """The chain of decisions, and what the job waits for."""
        view = self.view(job_id)
        rows = self._service.store.latest_decisions([job_id], limit=MOST_FOLDED)
        held_by, start_at = tuple(view["held_by"]), view["expected_start_at"]
        state, predictor = self._service.seen
        row = state.by_id.get(job_id)
        if view["state"] in ("queued", "suspended") and not held_by and row is not None:
            with self._service.deciding:
                held_by, expected_at = expected_times.expected_start(state, predictor, row)
            start_at = finite(start_at or expected_at)
        said = ("verdict", "reason_code", "reason", "offers", "p50_at", "p90_at")
        return {
            "job": view,
            "verdict": {"kind": view["verdict"], **{name: view[name] for name in said[1:]}},
            "chain": fold_repeats(rows)[-CHAIN_LENGTH:],
            "held_by": list(held_by),
            "expected_start_at": start_at,
        }

    def decisions(
        self, job_id: str | None, namespaces: Sequence[str] | None, limit: int
    ) -> list[Json]:
        jobs = None if job_id is None else [job_id]
        most = max(limit, MOST_FOLDED)
        rows = self._service.store.latest_decisions(jobs, namespaces=namespaces, limit=most)
        return fold_repeats(rows)[-limit:]

    def cluster(self) -> Json:
        """Capacity, policy, and how promises have come out so far."""
        state, predictor = self._service.seen
        return {
            "now": time.time(),
            "nodes": [_node(state, node.id) for node in state.nodes],
            "total_gpus": state.total_gpus,
            "free_gpus": state.free_gpus,
            "cycle": state.cycle,
            "policy": self._service.settings.policy,
            "world": self._service.settings.world,
            "predictor_version": predictor.version,
            "acting": self._service.leading,
            "failure": self._service.failure,
            "promises": promise_counts(self._service.board.all()),
        }

    def logs(self, job_id: str, index: int, tail: int | None) -> str:
        self.view(job_id)
        text = self._world.logs(job_id, index)
        if tail is None:
            return text
        return "".join(text.splitlines(keepends=True)[-tail:]) if tail else ""

    def ingest(self, job_id: str, uid: str, lines: Sequence[object]) -> int:
        """Take a worker's reports; those of an earlier job of this name are not for this one."""
        view = self.view(job_id)
        if uid != view["uid"]:
            message = f"{job_id} is another job: its uid is {view['uid']}, not {uid!r}"
            raise ConflictError(message)
        row = self._service.state.by_id.get(job_id) if self._service.state else None
        since = max(row.resumed_at or 0.0, row.width_changed_at or 0.0) if row else 0.0
        acked = self._reporting.ingest(
            view["uid"],
            job_id,
            self._workload(job_id, view),
            lines,
            nodes=row.nodes if row else (),
            since=since,
        )
        if lines:
            self._service.board.stale(view["uid"])
            self._service.metrics.reports.inc(len(lines))
            self._tell_epochs(view["uid"], lines)
            self._world.wake()
        return acked

    def _tell_epochs(self, uid: str, lines: Sequence[object]) -> None:
        """To MLflow, where that is the service's to do and not the workers'."""
        telling = self._service.telling
        if telling is not None and os.environ.get(names.ENV_TRACKED_BY) == "service":
            telling.send_epochs(uid, lines)

    def signal(self, job_id: str) -> Signal:
        """What its workers should do; nothing at all once the job has ended."""
        try:
            return self._world.signal(job_id)
        except UnknownJobError:
            self.view(job_id)
            return Signal()

    def pin(self, job_id: str) -> None:
        """Touch this running job no more; what it holds stays counted."""
        row = self._unfinished(job_id)
        if not row.workers:
            state = self.view(job_id)["state"]
            message = f"{job_id} is {state}: only a running job is released; cancel ends this one"
            raise ConflictError(message)
        self._change(job_id, RELEASED)

    def unpin(self, job_id: str) -> None:
        """Look after this job again."""
        if not self._unfinished(job_id).pinned:
            message = f"{job_id} is not pinned: it is looked after as it is"
            raise ConflictError(message)
        self._change(job_id, TAKEN_BACK)

    def release(self) -> Released:
        for view in self._service.board.all():
            if view["state"] not in ENDED:
                self._service.board.mark(view["uid"], released=True)
        released = self._world.release()
        self._world.wake()
        return released

    def _first(self, manifest: Mapping[str, Any]) -> Json:
        now = time.time()
        report = self._service.report_of(str(manifest["metadata"]["uid"]))
        return self._shown(self._service.board.first(manifest, report, now), now)

    def _shown(self, view: Json, now: float) -> Json:
        """The view, with the page of its run, or why nobody tracks it for now."""
        telling = self._service.telling
        problem = (
            telling.delivery_problem("mlflow") if telling and view["state"] not in ENDED else ""
        )
        url = self._service.settings.run_url(view.get("experiment", ""), view["run_id"])
        return shown(view, now) | {"run_url": url, "untracked": problem}

    def _unfinished(self, job_id: str) -> Job:
        state, _ = self._service.seen
        row = state.by_id.get(job_id)
        if row is None:
            view = self.view(job_id)
            message = f"{job_id} is {view['state']}: there is nothing to ask for"
            raise ConflictError(message)
        return row

    def _counts_from(self, row: Job) -> float:
        """When a deadline of this job begins that is a duration."""
        said = self._world.job(row.id)["metadata"].get("annotations") or {}
        return counts_from(instant_of(said.get(names.SUBMITTED_AT)), row.submitted_at)

    def _judged(self, row: Job, state: ClusterState | None = None) -> Answer:
        """What would be decided; Problem if the policy fails, whose words may name anybody's Job."""
        seen, predictor = self._service.seen
        try:
            with self._service.deciding:
                return ask(state or seen, row, predictor, self._service.policy)
        except Exception as error:
            LOG.exception("no verdict on %s: the policy fails", row.id, extra={"job": row.id})
            raise Problem(503, "policy_fails", POLICY_FAILS) from error

    def _change_terms(self, job_id: str, changes: Mapping[str, str | None]) -> None:
        """The terms of the first submission stay: by them its key knows the job again."""
        said = self._world.job(job_id)["metadata"].get("annotations") or {}
        first = {name: said.get(name) for name in (names.DEADLINE, names.CLASS, names.WIDTHS)}
        kept = said.get(names.FIRST_TERMS) or orjson.dumps(first).decode()
        self._change(job_id, {**changes, names.FIRST_TERMS: kept})

    def _change(self, job_id: str, annotations: Mapping[str, str | None]) -> None:
        self._world.annotate(job_id, annotations)
        self._world.wake()

    def _probe(self, job_id: str) -> None:
        """Two epochs as best effort under another name; then the job is asked for again."""
        job = self._world.job(job_id)
        self._world.submit(probe_of(job, TrainingSpec.from_manifest(job)))
        self._world.wake()

    def _workload(self, job_id: str, view: Json) -> Workload:
        if self._service.state is not None:
            row = self._service.state.by_id.get(job_id)
            if row is not None:
                return row.workload
        try:
            return Workload.of(TrainingSpec.from_manifest(self._world.job(job_id)))
        except (QoSError, UnknownJobError):
            namespace, _, name = job_id.partition("/")
            model = model_key(namespace, view["model"] or name)
            return Workload(model=model, epochs=max(1, view["epochs"]))


def _node(state: ClusterState, node_id: str) -> Json:
    node = next(node for node in state.nodes if node.id == node_id)
    return {
        "id": node.id,
        "gpus": node.gpus,
        "free_gpus": node.free_gpus,
        "gpu_type": node.gpu_type,
        "pool": node.pool,
        "reclaim_at": finite(node.reclaim_at),
    }
