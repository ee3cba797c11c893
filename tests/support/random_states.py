"""Random snapshots that a World could observe, each from its seed.

Jobs wait, run, start, stop, park, shrink, grow or terminate; some are pinned, refused, late, on a
width that is no longer theirs, on a node that is gone, or done but for their end. Promises are kept,
broken and in danger. Nodes are shared with other people, lent, or not for training.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any, Final

from laxity_profiler.estimate import Progress
from laxity_scheduler.model.cluster import ClusterState, Hold, InferenceDemand, Node, NodeSet, Pool
from laxity_scheduler.model.job import FOREVER, Forecast, Job, Refusal, Verdict
from laxity_scheduler.model.reasons import reason
from tests.support.builders import Curve, job, promise

NOW = 1_200.0
WIDTHS = ((1,), (2,), (1, 2), (1, 2, 4), (2, 3), (1, 4), (1, 2, 4, 8))
PHASES = ("trains", "trains", "trains", "starts", "stops", "parks", "changes", "overdue")
POOLS: Final[tuple[Pool, ...]] = ("training",) * 8 + ("loaned", "inference")
SHARE_ENDED: Final = 0.02
SHARE_CORDONED: Final = 0.3
SHARE_HELD: Final = 0.6
SHARE_PUT_OFF: Final = 0.1
PREDICTORS = (
    Curve(epoch_s=60.0),
    Curve(epoch_s=20.0, spread=0.3, start_s=10.0, stop_s=2.0),
    Curve(epoch_s=60.0, speedup={2: 1.5, 4: 1.4}, start_s=30.0, stop_s=5.0),
    Curve(epoch_s=600.0, unknown=frozenset({"new"})),
)


@dataclass(frozen=True)
class Case:
    """One state with the predictor that is asked about it; `seed` makes it again."""

    seed: int
    state: ClusterState
    predictor: Curve


@cache
def cases(many: int) -> tuple[Case, ...]:
    """The first so many cases; those of `make unit` are made once and asked by all policies."""
    return tuple(drawn(many))


def drawn(many: int) -> Iterator[Case]:
    return (case(seed) for seed in range(many))


def case(seed: int) -> Case:
    draw = Random(seed)
    state, predictor = snapshot(draw), draw.choice(PREDICTORS)
    return Case(seed, ended(state, draw), predictor)


def snapshot(draw: Random) -> ClusterState:
    """A cluster of a few nodes and up to nine jobs."""
    sizes = [draw.choice((1, 2, 4, 8)) for _ in range(draw.randint(1, 4))]
    place = _Place(draw, {f"n{number}": size for number, size in enumerate(sizes)})
    jobs = [_job(draw, number, place) for number in range(draw.randint(0, 9))]
    nodes = tuple(_node(draw, f"n{number}", size, place) for number, size in enumerate(sizes))
    if len(nodes) > 1 and draw.random() < 0.1:  # a node is lost with all that was free on it
        nodes = nodes[1:]
    return ClusterState(
        now=NOW,
        nodes=nodes,
        jobs=tuple(sorted(jobs, key=lambda one: (one.submitted_at, one.id))),
        holds=_holds(draw, nodes, jobs),
        budgets=draw.choice((None, None, {"team": 2_000.0})),
    )


def ended(state: ClusterState, draw: Random) -> ClusterState:
    """Sometimes the epochs of a job or two are all done, and it has yet to end."""
    rows = [
        replace(job, progress=replace(job.progress, epochs_done=job.workload.epochs))
        if draw.random() < SHARE_ENDED
        else job
        for job in state.jobs
    ]
    return replace(state, jobs=tuple(rows))


@cache
def restricted_cases(many: int) -> tuple[Case, ...]:
    return tuple(restricted(case(seed), Random(f"sets of {seed}")) for seed in range(many))


def restricted(case: Case, draw: Random) -> Case:
    """The same where some jobs may use some nodes only: nested, disjoint, overlapping sets, or none.

    Who runs does so where it may, but for a few whose nodes were labelled anew while they ran.
    """
    names = [node.id for node in case.state.nodes]
    sets = {
        f"set{number}": NodeSet(
            frozenset(name for name in names if draw.random() < share), "not for this one"
        )
        for number, share in enumerate(draw.choices((0.0, 0.3, 0.5, 0.8), k=draw.randint(1, 4)))
    }
    rows = [
        replace(job, eligible=_set_for(draw, job, sets)) if draw.random() < 0.5 else job
        for job in case.state.jobs
    ]
    return replace(case, state=replace(case.state, jobs=tuple(rows), sets=sets))


def cordoned(case: Case, draw: Random) -> Case:
    """The same where somebody empties a node or two, with whoever runs there."""
    nodes = tuple(
        replace(node, pool="cordoned", free_gpus=min(0, node.free_gpus))
        if draw.random() < SHARE_CORDONED
        else node
        for node in case.state.nodes
    )
    return replace(case, state=replace(case.state, nodes=nodes))


def lending(case: Case, draw: Random) -> Case:
    """The same where inference lends nodes or wants some back, soon, later or at once."""
    pools: tuple[Pool, ...] = ("training", "training", "loaned", "loaned", "inference")
    nodes = tuple(replace(node, pool=draw.choice(pools)) for node in case.state.nodes)
    horizon_at = NOW + draw.choice((-1.0, 600.0, 1_800.0))
    demand = InferenceDemand(
        needed_gpus=draw.choice((0.0, draw.uniform(0.0, 20.0), 1e6)),
        forecast_gpus=draw.uniform(0.0, 20.0),
        horizon_at=horizon_at,
        reclaim_by=draw.choice((0.0, NOW, NOW + 60.0, NOW + 900.0, FOREVER)),
    )
    return replace(case, state=replace(case.state, nodes=nodes, inference=demand))


def held(case: Case) -> Case:
    """The same where more GPUs are held, also for jobs that run, and some starts are put off."""
    draw, names = Random(f"holds of {case.seed}"), [job.id for job in case.state.jobs]
    holds = [
        Hold(draw.choice(names), node.id, draw.randint(1, 4), NOW + draw.choice((60.0, 600.0)))
        for node in case.state.nodes
        if names and draw.random() < SHARE_HELD
    ]
    jobs = tuple(
        replace(job, not_before=NOW + 60.0) if draw.random() < SHARE_PUT_OFF else job
        for job in case.state.jobs
    )
    return replace(case, state=replace(case.state, jobs=jobs, holds=(*case.state.holds, *holds)))


def _set_for(draw: Random, job: Job, sets: dict[str, NodeSet]) -> str:
    fits = [name for name, one in sets.items() if one.nodes.issuperset(job.nodes)]
    return draw.choice(sorted(sets) if draw.random() < 0.1 else [*fits, ""])


@dataclass
class _Place:
    """What is still free while jobs are put onto nodes."""

    draw: Random
    free: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)

    def take(self, workers: int, size: int) -> tuple[str, ...]:
        """A node for each worker; none at all if they do not fit."""
        trial, nodes = dict(self.free), []
        for _ in range(workers):
            fits = [name for name, gpus in trial.items() if gpus >= size]
            if not fits:
                return ()
            nodes.append(self.draw.choice(fits))
            trial[nodes[-1]] -= size
        self.free = trial
        return tuple(nodes)


def _node(draw: Random, name: str, size: int, place: _Place) -> Node:
    others = draw.randint(0, place.free[name]) if draw.random() < 0.15 else 0
    return Node(name, size, place.free[name] - others, pool=draw.choice(POOLS))


def _job(draw: Random, number: int, place: _Place) -> Job:
    size, widths = draw.choice((1, 1, 1, 2, 4)), draw.choice(WIDTHS)
    epochs = draw.randint(1, 30)
    kind = draw.choice(("hard", "hard", "soft", "best_effort"))
    due_at = FOREVER if kind == "best_effort" else NOW + draw.uniform(-500.0, 3_000.0)
    wanted = draw.choice((0, 0, *widths))
    if draw.random() < 0.03:
        wanted = 3  # its user changed the widths while it ran
    nodes = place.take(wanted, size) if wanted else ()
    given: dict[str, Any] = _running(draw, len(nodes), widths) if nodes else {}
    if not nodes and draw.random() < 0.1:
        given = {"terminating_workers": len(place.take(1, size))}
    verdict = _verdict(draw, kind, due_at, running=bool(nodes))
    fields: dict[str, Any] = {
        "service_class": kind,
        "gpus_per_worker": size,
        "submitted_at": draw.choice((0.0, NOW, draw.uniform(0.0, NOW), draw.uniform(0.0, NOW))),
        "queued_at": draw.uniform(0.0, NOW),
        "since": draw.uniform(0.0, NOW),
        "attained_gpu_s": draw.choice((0.0, draw.uniform(0.0, 100_000.0))),
        "preemptions": draw.choice((0, 0, 1, 5)),
        "preemptible": draw.random() < 0.8,
        "pinned": draw.random() < 0.1,
        "on_miss": draw.choice(("continue", "continue", "stop")),
        "verdict": verdict,
        "asked": verdict is None or draw.random() < 0.15,
        **given,
    }
    made = job(
        f"j{number}",
        epochs=epochs,
        due_at=due_at,
        workers=widths,
        model=draw.choice(("mlp", "mlp", "new")),
        running=len(nodes),
        nodes=nodes,
        **fields,
    )
    return replace(made, progress=_progress(draw, epochs, widths))


def _progress(draw: Random, epochs: int, widths: tuple[int, ...]) -> Progress:
    done = draw.choice((0, draw.randint(0, epochs - 1)))
    seen = draw.randint(0, min(done, 3))
    return Progress(
        done,
        tuple(draw.uniform(1.0, 300.0) for _ in range(seen)),
        tuple(draw.choice(widths) for _ in range(seen)),
    )


def _running(draw: Random, workers: int, widths: tuple[int, ...]) -> dict[str, Any]:
    resumed_at = draw.choice((NOW, draw.uniform(0.0, NOW), draw.uniform(0.0, NOW)))
    fields: dict[str, Any] = {"resumed_at": resumed_at, "width_changed_at": resumed_at}
    phase = draw.choice(PHASES)
    narrower = [width for width in widths if width < workers]
    if phase == "starts":
        fitting = draw.choice((None, None, 0, workers - 1, workers))
        return fields | {"formed": 0, "epoch_started_at": None, "fitting_workers": fitting}
    fields["epoch_started_at"] = draw.uniform(max(resumed_at, NOW - 100.0), NOW)
    if phase == "overdue":
        return fields | {"stop_requested_at": 0.0, "resumed_at": 0.0, "stop_for": "team/j1"}
    if phase == "stops":
        whom = draw.choice(("", "team/j0", "team/j99"))
        return fields | {"stop_requested_at": draw.uniform(resumed_at, NOW), "stop_for": whom}
    if phase == "parks":
        parked = {"stop_requested_at": NOW - 1.0, "parked_epoch": 1, "epoch_started_at": None}
        return fields | parked
    if phase == "changes" and narrower:
        which = draw.choice(("shrinks", "formed", "grows"))
        if which == "grows":
            return fields | {"formed": narrower[0]}
        formed = narrower[0] if which == "formed" else workers
        return fields | {"resize_to": narrower[0], "formed": formed}
    return fields


def _verdict(draw: Random, kind: str, due_at: float, *, running: bool) -> Verdict | None:
    choice = draw.randint(0, 3)
    if choice == 0:
        return None
    if kind != "hard":
        return Forecast(NOW, NOW, 0.0, reason("forecast", p90_at=0.0))
    if choice == 1 and not running:
        return Refusal(reason("deadline_in_the_past", due_at=1.0))
    shift = draw.choice((0.0, 0.0, -50.0, 50.0))
    return promise(due_at + shift, p90_at=due_at)


def _holds(draw: Random, nodes: tuple[Node, ...], jobs: list[Job]) -> tuple[Hold, ...]:
    waiting = [one.id for one in jobs if not one.workers]
    if not waiting:
        return ()
    return tuple(
        Hold(draw.choice(waiting), node.id, draw.randint(1, 4), NOW + draw.choice((60.0, -1.0)))
        for node in nodes
        if draw.random() < 0.3
    )
