"""What every policy must do on every state, live or simulated: `examine` asks, random_states draws.

An AssertionError or PlanError says which claim does not hold; `examined` then looks for a smaller
state on which it does not hold either, and says how to make it again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from laxity_scheduler.model.cluster import ClusterState, Node
from laxity_scheduler.model.decision import (
    Admit,
    Decision,
    Forecasted,
    Preempt,
    Promised,
    Refuse,
    Resize,
    Wait,
)
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import apply_plan, check_plan
from laxity_scheduler.store import codec
from tests.support.builders import Curve
from tests.support.random_states import Case

ACTING = (Admit, Resize, Preempt)
VERDICTS = (Promised, Forecasted, Refuse)
FOLLOW_UPS = frozenset(
    {
        "node_cordoned",
        "node_taken_back",
        "node_lost",
        "stopped_at_epoch",
        "stopped_at_step",
        "stopped_after_epoch",
        "stop_overdue",
    }
)
DECISIONS = 3
SAME_S = 1e-6


@dataclass(frozen=True)
class Answer:
    """What a policy said about a state."""

    policy: Policy
    state: ClusterState
    predictor: Curve
    plan: Plan


Claim = Callable[[Answer], None]


def examined(policy: Policy, cases: Iterable[Case], claims: Sequence[Claim] = ()) -> None:
    """All claims on all cases; the first failure is made small before it is told."""
    for case in cases:
        try:
            examine(policy, case.state, case.predictor, claims)
        except Exception as problem:
            small = shrunk(policy, case, claims)
            message = f"random_states.case({case.seed}): {problem}\non {small}\n{case.predictor}"
            raise AssertionError(message) from problem


def shrunk(policy: Policy, case: Case, claims: Sequence[Claim] = ()) -> ClusterState:
    """The state without the jobs, holds and nodes that the failure does not need."""
    state = case.state
    while True:
        for smaller in _smaller(state):
            try:
                examine(policy, smaller, case.predictor, claims)
            except Exception:  # noqa: BLE001 - whatever went wrong still does
                state = smaller
                break
        else:
            return state


def _smaller(state: ClusterState) -> Iterator[ClusterState]:
    for at, gone in enumerate(state.jobs):
        if not (gone.workers or gone.terminating_workers):  # GPUs stay as they were counted
            yield replace(state, jobs=state.jobs[:at] + state.jobs[at + 1 :])
    for at in range(len(state.holds)):
        yield replace(state, holds=state.holds[:at] + state.holds[at + 1 :])
    used = {name for job in state.jobs for name in job.nodes}
    for at, node in enumerate(state.nodes):
        if node.id not in used:
            yield replace(state, nodes=state.nodes[:at] + state.nodes[at + 1 :])
    for at, job in enumerate(state.jobs):
        if job.workers and not job.terminating_workers:
            nodes = tuple(_without(node, job) for node in state.nodes)
            yield replace(state, nodes=nodes, jobs=state.jobs[:at] + state.jobs[at + 1 :])


def _without(node: Node, job: Job) -> Node:
    back = job.nodes.count(node.id) * job.gpus_per_worker
    return replace(node, free_gpus=node.free_gpus + back) if back else node


def examine(
    policy: Policy, state: ClusterState, predictor: Curve, claims: Sequence[Claim] = ()
) -> None:
    """Claims (default: all) on one state."""
    before = codec.encode_record(state)
    plan = policy(state, predictor)
    check_plan(plan, state)
    assert codec.encode_record(state) == before, "a snapshot is never changed"
    answer = Answer(policy, state, predictor, plan)
    for claim in claims or CLAIMS:
        claim(answer)


def the_same_state_gives_the_same_bytes(answer: Answer) -> None:
    """Nothing is remembered that matters."""
    told = codec.plan_bytes(answer.plan)
    assert codec.plan_bytes(answer.policy(answer.state, answer.predictor)) == told
    copy, anew = codec.load_state(codec.encode_record(answer.state)), replace(answer.predictor)
    assert codec.plan_bytes(answer.policy(copy, anew)) == told, "an equal state, the same plan"


def the_order_of_jobs_is_no_matter(answer: Answer) -> None:
    state, plan = answer.state, answer.plan
    mixed = answer.policy(replace(state, jobs=_mixed(state.jobs)), answer.predictor)
    assert mixed.wake_at == plan.wake_at
    assert _sorted(mixed) == _sorted(plan)


def _mixed(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """In another order; those submitted at one instant keep theirs: it says who was first."""
    places = Random(len(jobs)).sample(range(len(jobs)), len(jobs))
    instants = [jobs[place].submitted_at for place in places]
    left = {at: iter([job for job in jobs if job.submitted_at == at]) for at in instants}
    return tuple(next(left[at]) for at in instants)


def _sorted(plan: Plan) -> list[bytes]:
    return sorted(codec.encode_record(decision) for decision in plan.decisions)


def it_wakes_later_or_never(answer: Answer) -> None:
    assert answer.plan.wake_at > answer.state.now, "it would be decided at once again"


def no_node_is_given_twice(answer: Answer) -> None:
    """Counted here without the ledger: free GPUs of each node, those held for others apart."""
    state, plan = answer.state, answer.plan
    takes: Counter[str] = Counter()
    starts = set()
    for decision in plan.decisions:
        if isinstance(decision, Admit | Resize):
            job = state.by_id[decision.job]
            new = decision.nodes[job.workers :]
            assert decision.workers in job.widths
            assert len(decision.nodes) == decision.workers
            may = _may_use(state, job)
            assert may.issuperset(new), f"{job.id} may use {sorted(may)}, not all of {new}"
            takes.update({name: job.gpus_per_worker * new.count(name) for name in set(new)})
            starts |= {job.id} if new else set()
    nodes = {node.id: node for node in state.nodes}
    for name, gpus in takes.items():
        node = nodes[name]
        assert node.pool != "inference", f"{name} is not for training"
        held = [
            hold.gpus
            for hold in state.holds
            if hold.node == name and hold.until_at > state.now and hold.job not in starts
        ]
        assert gpus <= node.free_gpus, f"{gpus} taken of {node.free_gpus} on {name}"
        if len(held) == len([hold for hold in state.holds if hold.node == name]):
            assert gpus <= max(0, node.free_gpus - sum(held)), f"{name}: held for others"


def _may_use(state: ClusterState, job: Job) -> frozenset[str]:
    if not job.eligible:
        return frozenset(node.id for node in state.nodes)
    return (state.sets or {})[job.eligible].nodes


def only_what_may_be_touched_is(answer: Answer) -> None:
    state, plan = answer.state, answer.plan
    acted = [decision for decision in plan.decisions if isinstance(decision, ACTING)]
    names = [decision.job for decision in acted]
    assert len(names) == len(set(names)), "nothing is decided twice"
    told = [decision.job for decision in plan.decisions if isinstance(decision, VERDICTS)]
    assert len(told) == len(set(told)), "nobody gets two verdicts at once"
    after = apply_plan(plan, state).by_id
    for decision in acted:
        job = state.by_id[decision.job]
        assert not job.pinned, "a pinned job is its user's"
        if isinstance(decision, Admit):
            assert not job.workers + job.terminating_workers, "its pods are not gone yet"
            assert not after[job.id].refused
        stops = job.stop_requested_at is not None or job.parked_epoch is not None
        if isinstance(decision, Resize) and stops and decision.workers > job.workers:
            raise AssertionError(f"{decision}: it was told to stop")
        if isinstance(decision, Preempt) and stops:
            assert decision.at == "now", "it was asked to stop already"
    for other in plan.decisions:
        if isinstance(other, Refuse) and state.by_id[other.job].workers:
            assert not after[other.job].refused, "it runs: stop it first"
        if isinstance(other, Wait):
            assert other.expected_start_at >= state.now


def every_decision_says_why(answer: Answer) -> None:
    for decision in answer.plan.decisions:
        assert "?" not in decision.reason.text, f"a figure is missing: {decision.reason.text}"
        for name, value in decision.reason.facts:
            assert value == value, f"{name} of {decision} is no number"  # noqa: PLR0124 - NaN


def promises_stand(answer: Answer) -> None:
    """One whose deadline is ahead is never taken back; its user may have asked for another."""
    state, after = answer.state, apply_plan(answer.plan, answer.state).by_id
    for job in state.jobs:
        new, old = after[job.id].verdict, job.verdict
        if isinstance(old, Promise) and state.now <= old.deadline_at:
            if not job.asked:
                assert isinstance(new, Promise), f"{job.id}: a promise was taken back"
                assert new.deadline_at == old.deadline_at
            elif job.service_class == "hard":
                assert isinstance(new, Promise), f"{job.id}: refused, the old promise stands"
                assert new.deadline_at in (old.deadline_at, job.deadline_at)


def new_promises_are_in_time_as_they_are_told(answer: Answer) -> None:
    state, after = answer.state, apply_plan(answer.plan, answer.state).by_id
    for job in state.jobs:
        new = after[job.id].verdict
        if not isinstance(new, Promise) or isinstance(job.verdict, Promise):
            continue
        assert new.deadline_at == job.deadline_at < FOREVER
        ended = job.progress.epochs_done >= job.workload.epochs
        assert state.now - ended < new.p90_at <= new.deadline_at + SAME_S, f"{job.id}: {new}"
        assert new.p50_at <= new.p90_at + SAME_S, f"{job.id}: {new}"
        assert new.runs, f"{job.id}: nothing is reserved"


def deciding_again_at_once_takes_nothing_back(answer: Answer) -> None:
    """Three decisions on one clock: who was started, stopped or resized is left alone from then on.

    One exception: who was asked to give some workers at its epoch's end may later be asked for all,
    once; before that end for one with a promise only, which cannot wait for it.
    """
    plan, state = answer.plan, answer.state
    acted: dict[str, Decision] = {}
    for _ in range(DECISIONS - 1):
        acted |= {d.job: d for d in plan.decisions if isinstance(d, ACTING) and not _formed(d)}
        state = apply_plan(plan, state)
        plan = answer.policy(state, answer.predictor)
        check_plan(plan, state)
        for decision in plan.decisions:
            if isinstance(decision, ACTING) and decision.job in acted:
                first = acted[decision.job]
                assert _all_after_some(first, decision, state), (
                    f"{first} and then at once {decision}"
                )


def _formed(decision: Decision) -> bool:
    return isinstance(decision, Resize) and decision.reason.code == "reformed"


def _all_after_some(first: Decision, then: Decision, state: ClusterState) -> bool:
    if not (isinstance(first, Resize) and first.at == "epoch" and isinstance(then, Preempt)):
        return False
    whom = state.by_id.get(then.beneficiary)
    return then.at == "epoch" or (whom is not None and isinstance(whom.verdict, Promise))


def nobody_is_stopped_for_whom_enough_is_on_its_way(answer: Answer) -> None:
    """Counted here without the policy: GPUs held for a job, and of those who stop for it."""
    state = answer.state
    for decision in answer.plan.decisions:
        if not isinstance(decision, Preempt) or decision.beneficiary in {"", decision.job}:
            continue
        whom = state.by_id[decision.beneficiary]
        if decision.reason.code in FOLLOW_UPS:
            continue
        coming: Counter[str] = Counter()
        for job in state.running:
            stops = job.stop_requested_at is not None or job.parked_epoch is not None
            if stops and job.stop_for == whom.id and not job.pinned:
                coming.update(
                    {name: job.gpus_per_worker * job.nodes.count(name) for name in set(job.nodes)}
                )
        for hold in state.holds:
            if hold.job == whom.id and hold.until_at > state.now:
                coming[hold.node] += hold.gpus
        may = _may_use(state, whom)
        if whom.workers:
            may &= frozenset(whom.nodes)  # one that runs grows on its own nodes only
        usable = {node.id: node.gpus for node in state.nodes if node.pool != "inference"}
        workers = sum(
            min(gpus, usable[name]) // whom.gpus_per_worker
            for name, gpus in coming.items()
            if name in usable and name in may
        )
        assert workers < max(whom.widths) - whom.workers, (
            f"{decision}: {dict(coming)} come to {whom.id} already"
        )


CLAIMS: Final[tuple[Claim, ...]] = (
    the_same_state_gives_the_same_bytes,
    the_order_of_jobs_is_no_matter,
    it_wakes_later_or_never,
    no_node_is_given_twice,
    only_what_may_be_touched_is,
    every_decision_says_why,
    promises_stand,
    new_promises_are_in_time_as_they_are_told,
    deciding_again_at_once_takes_nothing_back,
    nobody_is_stopped_for_whom_enough_is_on_its_way,
)
