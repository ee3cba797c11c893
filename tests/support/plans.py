"""What a plan does, in a line."""

from laxity_scheduler.model.decision import Admit, Preempt
from laxity_scheduler.plan import Plan


def started_widths(plan: Plan) -> dict[str, int]:
    """Workers by the name of a job of namespace `team`."""
    return {d.job.removeprefix("team/"): d.workers for d in plan.decisions if isinstance(d, Admit)}


def started_jobs(plan: Plan) -> list[str]:
    return [d.job for d in plan.decisions if isinstance(d, Admit)]


def stopped_jobs(plan: Plan) -> list[str]:
    return [d.job for d in plan.decisions if isinstance(d, Preempt)]
