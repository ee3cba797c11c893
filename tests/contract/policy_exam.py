"""What every policy must do on every state: hypothesis draws the states, `examine` asks.

States are as a cluster shows them: jobs that wait, run, start, stop, park, shrink, grow or
terminate; pinned and refused ones; promises kept, broken and in danger; holds; several nodes.
"""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st

from laxity_scheduler.engine import Policy
from laxity_scheduler.plan import (
    Admit,
    Decision,
    Forecasted,
    Plan,
    Preempt,
    Promised,
    Refuse,
    Resize,
)
from laxity_scheduler.reasons import reason
from laxity_scheduler.state import FOREVER, ClusterState, Hold, Job
from laxity_scheduler.verdict import Forecast, Refusal, Verdict
from tests.builders import Curve, cluster, job, promise

NOW = 1_000.0
WIDTHS = ((1,), (2,), (1, 2), (1, 2, 4), (2, 3), (1, 4))
ACTING = (Admit, Resize, Preempt)
VERDICTS = (Promised, Forecasted, Refuse)
PREDICTORS = (
    Curve(epoch_s=60.0),
    Curve(epoch_s=20.0, spread=0.3, start_s=10.0, stop_s=2.0),
    Curve(epoch_s=60.0, speedup={2: 1.5, 4: 1.4}, start_s=30.0, stop_s=5.0),
    Curve(epoch_s=600.0, unknown=frozenset({"new"})),
)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    """A snapshot that a World could observe."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4))
    free = {f"n{number}": size for number, size in enumerate(sizes)}
    jobs = [_job(draw, number, free) for number in range(draw(st.integers(0, 8)))]
    state = cluster(gpus=sizes, jobs=jobs, now=NOW, budgets=_budgets(draw))
    nodes = tuple(replace(node, free_gpus=free[node.id]) for node in state.nodes)
    return replace(state, nodes=nodes, holds=_holds(draw, free, jobs))


def _job(draw: st.DrawFn, number: int, free: dict[str, int]) -> Job:
    size = draw(st.sampled_from([1, 1, 1, 2, 4]))
    widths = draw(st.sampled_from(WIDTHS))
    epochs = draw(st.integers(1, 30))
    kind = draw(st.sampled_from(["hard", "hard", "soft", "best_effort"]))
    due_at = FOREVER if kind == "best_effort" else NOW + draw(st.floats(-500.0, 3_000.0))
    workers = draw(st.sampled_from([0, 0, *widths]))
    nodes = _placed(draw, workers, size, free)
    fields: dict[str, object] = {}
    if workers and nodes is None:
        workers, nodes = 0, ()
    if workers:
        fields = _running(draw, workers, widths)
    elif draw(st.integers(0, 9)) == 0:
        fields = {"terminating_workers": _terminating(draw, size, free)}
    verdict = _verdict(draw, kind, due_at, bool(workers))
    return job(
        f"j{number}",
        epochs=epochs,
        due_at=due_at,
        workers=widths,
        model=draw(st.sampled_from(["mlp", "new"])),
        done=draw(st.integers(0, epochs - 1)),
        running=workers,
        nodes=nodes or (),
        **{
            "service_class": kind,
            "gpus_per_worker": size,
            "submitted_at": draw(st.floats(0.0, NOW)),
            "queued_at": draw(st.floats(0.0, NOW)),
            "preemptible": draw(st.integers(0, 4)) > 0,
            "pinned": draw(st.integers(0, 9)) == 0,
            "on_miss": draw(st.sampled_from(["continue", "continue", "stop"])),
            "verdict": verdict,
            "asked": verdict is None or draw(st.integers(0, 5)) == 0,
            **fields,
        },
    )


def _placed(
    draw: st.DrawFn, workers: int, size: int, free: dict[str, int]
) -> tuple[str, ...] | None:
    nodes: list[str] = []
    for _ in range(workers):
        fits = [name for name, gpus in free.items() if gpus >= size]
        if not fits:
            for name in nodes:
                free[name] += size
            return None
        name = draw(st.sampled_from(fits))
        free[name] -= size
        nodes.append(name)
    return tuple(nodes)


def _running(draw: st.DrawFn, workers: int, widths: tuple[int, ...]) -> dict[str, object]:
    resumed_at = draw(st.floats(0.0, NOW))
    fields: dict[str, object] = {"resumed_at": resumed_at, "width_changed_at": resumed_at}
    phase = draw(
        st.sampled_from(["trains", "trains", "trains", "starts", "stops", "parks", "changes"])
    )
    narrower = [width for width in widths if width < workers]
    if phase == "starts":
        return fields | {"formed": 0, "epoch_started_at": None}
    fields["epoch_started_at"] = draw(st.floats(max(resumed_at, NOW - 100.0), NOW))
    if phase == "stops":
        return fields | {"stop_requested_at": draw(st.floats(resumed_at, NOW))}
    if phase == "parks":
        parked = {"stop_requested_at": NOW - 1.0, "parked_epoch": 1, "epoch_started_at": None}
        return fields | parked
    if phase == "changes" and narrower:
        which = draw(st.sampled_from(["shrinks", "formed", "grows"]))
        if which == "grows":
            return fields | {"formed": narrower[0]}
        formed = narrower[0] if which == "formed" else workers
        return fields | {"resize_to": narrower[0], "formed": formed}
    return fields


def _terminating(draw: st.DrawFn, size: int, free: dict[str, int]) -> int:
    for name, gpus in free.items():
        if gpus >= size:
            free[name] -= size
            return 1
    return 0


def _verdict(draw: st.DrawFn, kind: str, due_at: float, running: bool) -> Verdict | None:
    choice = draw(st.integers(0, 3))
    if choice == 0:
        return None
    if kind != "hard":
        return Forecast(NOW, NOW, 0.0, reason("forecast"))
    if choice == 1 and not running:
        return Refusal(reason("deadline_in_the_past"))
    shift = draw(st.sampled_from([0.0, 0.0, -50.0, 50.0]))
    return promise(due_at + shift, p90_at=due_at)


def _holds(draw: st.DrawFn, free: dict[str, int], jobs: Iterable[Job]) -> tuple[Hold, ...]:
    waiting = [one.id for one in jobs if not one.workers]
    if not waiting:
        return ()
    return tuple(
        Hold(draw(st.sampled_from(waiting)), name, draw(st.integers(1, 4)), NOW + 60.0)
        for name in free
        if draw(st.integers(0, 2)) == 0
    )


def _budgets(draw: st.DrawFn) -> dict[str, float] | None:
    return draw(st.sampled_from([None, None, {"team": 2_000.0}]))


def examine(policy: Policy, state: ClusterState, predictor: Curve) -> None:
    """All claims on one state; AssertionError or PlanError says which does not hold."""
    plan = policy(state, predictor)
    plan.check(state)
    assert plan == policy(state, predictor), "the same state gives the same plan"
    assert plan.wake_at > state.now, "it would be decided at once again"
    acted = [decision for decision in plan.decisions if isinstance(decision, ACTING)]
    _widths_are_allowed(state, acted)
    _only_what_may_be_touched(state, plan)
    _is_settled(policy, state, plan, predictor)


def _widths_are_allowed(state: ClusterState, acted: Iterable[Decision]) -> None:
    for decision in acted:
        if isinstance(decision, Admit | Resize):
            assert decision.workers in state.by_id[decision.job].widths


def _only_what_may_be_touched(state: ClusterState, plan: Plan) -> None:
    touched = [decision.job for decision in plan.decisions if isinstance(decision, ACTING)]
    assert len(touched) == len(set(touched)), "nothing is decided twice"
    told = [decision.job for decision in plan.decisions if isinstance(decision, VERDICTS)]
    assert len(told) == len(set(told)), "nobody gets two verdicts at once"
    for name in touched:
        assert not state.by_id[name].pinned
    after = plan.apply(state).by_id
    for decision in plan.decisions:
        if isinstance(decision, Admit):
            assert not after[decision.job].refused
        if isinstance(decision, Refuse):
            assert not state.by_id[decision.job].workers or not after[decision.job].refused


def _is_settled(policy: Policy, state: ClusterState, plan: Plan, predictor: Curve) -> None:
    """Deciding again at the same instant does not take back or redo what was just decided."""
    after = plan.apply(state)
    again = policy(after, predictor)
    again.check(after)
    first = {
        d.job: d
        for d in plan.decisions
        if isinstance(d, ACTING) and not (isinstance(d, Resize) and d.reason.code == "reformed")
    }
    for decision in again.decisions:
        if isinstance(decision, ACTING) and decision.job in first:
            raise AssertionError(f"{first[decision.job]} and then at once {decision}")
