"""Deadlines first: promise or refuse, start by least slack, size to be in time, stop where it pays.

The QoS framework (algorithms.md 3) with promises that are kept: the minimum share of ElasticFlow
behind every promise (7.6), PickyMan's choice of whom to stop (2.5). Steps of one decision:

1. verdicts for those who ask: promised are counted before the next is judged
2. running promised jobs that would miss their deadline get more workers
3. waiting jobs start in order; where a promise cannot wait, others are told to stop
4. jobs wider than they need give workers back to those who wait; idle GPUs widen who gains most
5. promises that moved are said anew, once per change
6. who would be refused for want of room is looked at again: all is decided as if it were promised
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState, is_promised
from laxity_scheduler.model.decision import Continue, Decision, Preempt, Promised, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.model.withdrawn_stops import needless_stops, withdraw_stops
from laxity_scheduler.plan import Plan
from laxity_scheduler.qos.context import DecisionContext, QosParameters
from laxity_scheduler.qos.idle_growth import grow_into_idle
from laxity_scheduler.qos.promise_messages import say_forecasts, say_promises
from laxity_scheduler.qos.second_look import is_in_time, look_again
from laxity_scheduler.qos.sizing import grow_late_soft, grow_promised, shrink_for_waiting
from laxity_scheduler.qos.starting import Starts
from laxity_scheduler.qos.verdicts import (
    assume_promised,
    claim_leftovers,
    give_verdicts,
    stop_missed,
)
from laxity_scheduler.qos.wait_messages import expect_starts, say_starts, say_waits


@dataclass(frozen=True)
class QosPolicy(QosParameters):
    """The policy with its free parameters; calling it decides."""

    def __call__(self, state: ClusterState, predictor: Predictor) -> Plan:
        def decide(state: ClusterState, assumed: frozenset[str]) -> Plan:
            return self._plan_with(assumed, state, predictor)

        state = state.in_submission_order  # who came first decides ties
        return look_again(decide, state, predictor, self.second_looks)

    def _plan_with(
        self, assumed: frozenset[str], state: ClusterState, predictor: Predictor
    ) -> Plan:
        spared = needless_stops(state)
        while spared:
            kept = withdraw_stops(state, spared)
            decisions, wake_at = self._decide(assumed, kept, predictor)
            stopped = {d.job for d in decisions if isinstance(d, Preempt)}
            if stopped.isdisjoint(job.id for job in spared):
                if any(_endangers(decision, state) for decision in decisions):
                    break  # who was promised since rests on these stops
                return Plan(_take_stops_back(decisions, spared), min(wake_at, state.now + 1.0))
            spared = [job for job in spared if job.id not in stopped]  # others need these
        decisions, wake_at = self._decide(assumed, state, predictor)
        return Plan(tuple(decisions), wake_at)

    def _decide(
        self, assumed: frozenset[str], state: ClusterState, predictor: Predictor
    ) -> tuple[list[Decision], float]:
        forecasts = Forecasts(state, predictor)
        context = _let_promises_have(DecisionContext(state, forecasts, self), forecasts)
        assume_promised(context, assumed)
        give_verdicts(context)
        stop_missed(context)
        claim_leftovers(context)
        starts = Starts(context)
        starts.reserve_for_restarts()
        grow_promised(context)
        starts.start_claimed()
        starts.preempt_as_planned()
        starts.start_unclaimed()
        grow_late_soft(context)
        shrink_for_waiting(context)
        grow_into_idle(context)
        say_promises(context)
        say_starts(context)
        starts_s = expect_starts(context, starts.queue)
        say_forecasts(context, starts_s)
        say_waits(context, starts_s)
        for hold in state.holds:
            context.wake(hold.until_at)
        return context.decisions, context.wake_at


def _let_promises_have(context: DecisionContext, forecasts: Forecasts) -> DecisionContext:
    """Where a promise would be late: without what is held for jobs that claim nothing, if fewer are."""
    late, held = context.reservations.late, context.reservations.room.held
    by_id = context.state.by_id
    names = {hold.job for hold in held.unclaimed if hold.job in by_id}
    names = {name for name in names if not is_promised(by_id[name], context.now)}
    if not late or not names:
        return context
    holds = tuple([hold for hold in context.state.holds if hold.job not in names])
    state = replace(context.state, holds=holds)
    other = DecisionContext(state, forecasts, context.rules)
    return other if len(other.reservations.late) < len(late) else context


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    """The policy with its default parameters."""
    return DEFAULT(state, predictor)


DEFAULT = QosPolicy()
OPEN = QosPolicy(refuses=False)


def open_to_all(state: ClusterState, predictor: Predictor) -> Plan:
    """As published: nobody is refused; who cannot be promised is still served, behind promises."""
    return OPEN(state, predictor)


def _endangers(decision: Decision, state: ClusterState) -> bool:
    """Whether it says that a promise which was in time is so no more."""
    if not isinstance(decision, Promised):
        return False
    promise = decision.promise
    return is_in_time(state.by_id[decision.job]) and promise.p90_at > promise.deadline_at


def _take_stops_back(decisions: Iterable[Decision], spared: Iterable[Job]) -> tuple[Decision, ...]:
    """With the stops taken back; the widths of these jobs change from the next decision on."""
    beneficiaries = {job.id: job.stop_for for job in spared}
    others = [d for d in decisions if not (isinstance(d, Resize) and d.job in beneficiaries)]
    back = [
        Continue(job, reason("stop_taken_back", beneficiary=beneficiaries[job]))
        for job in beneficiaries
    ]
    return (*others, *back)
