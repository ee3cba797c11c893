"""First in, first out: each job on its widest width that fits, never changed, never stopped.

Baseline (algorithms 7.1). *Skip*: what does not fit is passed over; `strict`: the head blocks.
"""

from dataclasses import dataclass

from laxity_profiler.estimate import Predictor
from laxity_scheduler.decision import Admit, Wait
from laxity_scheduler.ledger import Ledger
from laxity_scheduler.order import never_starts
from laxity_scheduler.plan import Plan
from laxity_scheduler.reasons import reason
from laxity_scheduler.state import ClusterState


@dataclass(frozen=True, slots=True)
class Fifo:
    """`widest`: start on the widest width that fits; else on the least one."""

    strict: bool = False
    widest: bool = True

    def __call__(self, state: ClusterState, predictor: Predictor) -> Plan:
        ledger, never = Ledger.of(state), never_starts(state)
        decisions: list[Admit | Wait] = []
        blocked = False
        for job in sorted(state.queued, key=lambda job: (job.submitted_at, job.id)):
            widths = tuple(reversed(job.widths)) if self.widest else job.widths[:1]
            placed = None
            if not blocked:
                ledger.open_holds(job.id)
                may, size = state.eligible(job), job.gpus_per_worker
                options = ((width, ledger.place(width, size, may)) for width in widths)
                placed = next(((w, nodes) for w, nodes in options if nodes is not None), None)
            if placed is not None:
                why = reason("order", policy="fifo")
                decisions.append(Admit(job.id, placed[0], placed[1], why))
                continue
            if not blocked:
                ledger.close_holds(job.id)
            if (for_good := never(job)) is not None:  # it blocks nobody
                decisions.append(Wait(job.id, for_good))
                continue
            blocked = self.strict
            why = reason(
                "no_free_gpus",
                needed_gpus=widths[-1] * job.gpus_per_worker,
                gpus_per_worker=job.gpus_per_worker,
                free_gpus=ledger.part(state.eligible(job)).total_free,
            )
            decisions.append(Wait(job.id, why))
        return Plan(tuple(decisions))


decide = Fifo()
