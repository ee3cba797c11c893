"""Earliest deadline first, each job on the fewest workers that meet its deadline.

Baseline (algorithms 7.2, the *minimum* variant with skip): no promises, no growth, no preemption.
A job that is late on any width starts on its fastest one; without a deadline, on its least.
"""

from laxity_profiler.estimate import Predictor
from laxity_scheduler.columns.forecast import Forecasts
from laxity_scheduler.decision import Admit, Wait
from laxity_scheduler.eligible import never_fits
from laxity_scheduler.ledger import Ledger
from laxity_scheduler.plan import Plan
from laxity_scheduler.promising.queueing import slack
from laxity_scheduler.reasons import reason
from laxity_scheduler.state import FOREVER, ClusterState


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    forecasts = Forecasts(state, predictor)
    ledger = Ledger.of(state)
    decisions: list[Admit | Wait] = []
    wake_at = FOREVER
    for job in sorted(state.queued, key=lambda job: (job.deadline_at, job.submitted_at, job.id)):
        slack_s, width = slack(job, forecasts)
        ledger.open_holds(job.id)
        may = state.eligible(job)
        nodes = ledger.place(width, job.gpus_per_worker, may)
        if nodes is not None:
            why = reason("due_first", slack_s=slack_s, workers=width)
            decisions.append(Admit(job.id, width, nodes, why))
            continue
        ledger.close_holds(job.id)
        needed, size = width * job.gpus_per_worker, job.gpus_per_worker
        free = ledger.part(may).total_free
        why = never_fits(state, job) or reason(
            "no_free_gpus", needed_gpus=needed, gpus_per_worker=size, free_gpus=free
        )
        decisions.append(Wait(job.id, why))
        if 0.0 <= slack_s < FOREVER:
            wake_at = min(wake_at, state.now + slack_s + 1e-3)  # then it needs another width
    return Plan(tuple(decisions), wake_at)
