"""What a plan's decisions ask of each Job, as patches that are yet to be made.

Making a patch takes a tenth of a millisecond: those of first starts are made while others are sent.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from laxity_k8s import merge
from laxity_k8s.affinity import roomy
from laxity_k8s.api import Json
from laxity_k8s.guard import Guard
from laxity_k8s.patches import JobPatch, job_patch
from laxity_k8s.sending import Wish
from laxity_k8s.snapshot import Snapshot
from laxity_k8s.straying import postponed
from laxity_scheduler.plan import Admit, Decision, Loan, Reclaim, Resize
from laxity_scheduler.state import ClusterState, Job

WorkerToken = Callable[[str], str]


def no_token(uid: str) -> str:
    """For a service that nobody calls: its workers get no token."""
    del uid
    return ""


def wishes(
    decisions: Iterable[Decision],
    state: ClusterState,
    snapshot: Snapshot,
    *,
    cycle: int,
    guard: Guard,
    worker_token: WorkerToken = no_token,
) -> tuple[list[Wish], list[Wish]]:
    """Patches to be made: those to make before any is sent, and first starts, one by one.

    A Job of which none can be made is the guard's.
    """
    by_job: defaultdict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        if not isinstance(decision, Loan | Reclaim):
            by_job[decision.job].append(decision)
    if not by_job:
        return [], []
    shown = snapshot.shown
    late = postponed(by_job, state.by_id, shown, snapshot.on_its_way, guard)
    nodes = {node.id: node for node in state.nodes}
    freest = sorted(state.nodes, key=lambda node: (-node.free_gpus, node.id))
    now: list[Wish] = []
    later: list[Wish] = []

    def make(job: Json, row: Job, mine: Sequence[Decision], at: float) -> JobPatch | None:
        may = state.eligible(row)
        open_to = freest if may is None else (node for node in freest if node.id in may)
        room = roomy(nodes, open_to, row, mine)
        token = worker_token(str(job["metadata"].get("uid", "")))
        return job_patch(job, row, mine, now=at, cycle=cycle, roomy=room, token=token)

    for job_id, said in by_job.items():
        row, job = state.by_id.get(job_id), shown.get(job_id)
        mine = [one for one in said if not (job_id in late and isinstance(one, Resize))]
        if row is None or job is None or not mine:
            continue
        is_first = guard(job_id, first_start, job, mine)
        if is_first is not None:
            wish = partial(guard, job_id, make, job, row, mine, time.time())
            (later if is_first else now).append(wish)
    return now, later


def first_start(job: Json, decisions: Sequence[Decision]) -> bool:
    """Whether they let a Job run that never ran: nothing has to be cleared, or freed, before."""
    starts = any(isinstance(one, Admit) for one in decisions)
    return starts and not merge.dig(job, "status", "startTime")
