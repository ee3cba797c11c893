"""What people may change about groups on a running service, in plain values; HTTP is elsewhere."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from laxity.clock_time import ClockTime
from laxity.durations import deadline_instant, parse_zoned_deadline
from laxity_scheduler.groups.group import ENDED, Group, State
from laxity_scheduler.groups.records import describe_end, find_deviations
from laxity_scheduler.http.job_service import JobService
from laxity_scheduler.http.worker_calls import ConflictError
from laxity_scheduler.live import UnknownJobError
from laxity_scheduler.model.reasons import format_utc
from laxity_scheduler.service.group_cycle.group_book import read_group
from laxity_scheduler.service.group_cycle.group_rows import view_of
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.service_clock import CLOCK


class GroupService:
    """The groups of one service as people use them."""

    def __init__(self, service: Service, job_service: JobService) -> None:
        self._service, self._jobs, self._keeper = service, job_service, service.groups
        self._book = service.groups.book

    def register_group(self, document: Mapping[str, Any]) -> tuple[Json, bool]:
        """The view of the group with its verdict, and whether it is new."""
        group, is_new = self._book.find_declared(document)
        if is_new:
            self._book.keep(self._judge(group, keeps=True))
        self._service.world.wake()
        return self.view_of(group.id) | {"attached": not is_new}, is_new

    def answer_whatif(self, document: Mapping[str, Any]) -> Json:
        """The view of the group as it would be judged now; nothing is kept."""
        group = self._judge(read_group(document, CLOCK.now()))
        state = group.state if group.state == "refused" else "not submitted"
        return view_of(group) | {"state": state}

    def view_of(self, group_id: str) -> Json:
        """The group with the views of its jobs, in order of submission."""
        group = self._book.group(group_id)
        view = view_of(group) | self._keeper.group_fields(group)
        jobs = self._jobs_of(group)
        if not group.is_sweep:
            reason = describe_end(group, jobs) or view["reason"]
            view["reason"] = "; ".join([reason, *find_deviations(group, jobs)])
        return view | {"jobs": jobs}

    def list_groups(self, may_see: Callable[[str], bool]) -> list[Json]:
        """All groups of the namespaces that `may_see` accepts, without their jobs."""
        return [view_of(group) for group in self._book.groups(may_see)]

    def amend_deadline(self, group_id: str, deadline: str) -> Json:
        """Move the deadline of the whole; its steps get new shares. ValueError for no deadline."""
        group = self._running(group_id)
        due = parse_zoned_deadline(deadline)
        base_at = CLOCK.now() if isinstance(due, ClockTime) else group.submitted_at
        amended = replace(group, deadline_at=deadline_instant(due, base_at))
        if group.is_sweep and amended.deadline_at <= CLOCK.now():  # its verdict is its client's
            at = format_utc(amended.deadline_at)
            raise ValueError(
                f"{deadline} is {at}, which has passed: a duration counts from the start"
            )
        judged = self._judge(amended)
        if group.promised and judged.state == "refused":
            said = f"{judged.verdict['reason']}; the promise of before stands"
            return self.view_of(group_id) | judged.verdict | {"reason": said}
        self._book.keep(judged)
        self._service.world.wake()
        return self.view_of(group_id)

    def _judge(self, group: Group, *, keeps: bool = False) -> Group:
        """The group with a verdict on the whole, as of now."""
        state, predictor = self._service.last_snapshot
        state = replace(state, now=max(state.now, CLOCK.now()))
        with self._service.deciding:
            return self._keeper.judge(group, state, predictor, keeps=keeps)

    def end_group(self, group_id: str, state: State) -> Json:
        """The group after its client has come to its end; cancelled: its jobs with it.

        Refused trials go with their sweep, however it ended: who would accept an offer of theirs?
        """
        group = self._keeper.finish(self._book.group(group_id), state)
        for view in self._jobs_of(group):
            is_left = view["state"] == "refused" and group.is_sweep
            if state == "cancelled" or is_left:
                self._cancel(view["id"])
        self._service.world.wake()
        return self.view_of(group_id)

    def _running(self, group_id: str) -> Group:
        group = self._book.group(group_id)
        if group.state == "refused" and not self._jobs_of(group):
            raise ConflictError(
                f"{group_id} was refused before any of its jobs was submitted: submit it again, "
                "with this deadline"
            )
        if group.state in ENDED:
            raise ConflictError(f"{group_id} has ended ({group.state}): submit it again")
        return group

    def _cancel(self, job_id: str) -> None:
        try:
            self._jobs.cancel_job(job_id)
        except UnknownJobError:
            return

    def _jobs_of(self, group: Group) -> list[Json]:
        views = self._jobs.views.list_views(lambda namespace: namespace == group.namespace)
        return [view for view in views if f"{group.namespace}/{view['group']}" == group.id]
