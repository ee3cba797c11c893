"""Many jobs are decided alike with machine code and without: the same plans, byte for byte."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bench_decisions import later
from laxity_lab.world.crowd import crowd as newcomers
from laxity_lab.world.crowd import underway
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame import compiled
from laxity_scheduler.frame.arrays import construct_many, replace_fields
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import costs
from laxity_scheduler.store import codec
from tests.support.random_states import restricted_cases

Kinds = list[Callable[[Job, float], Job]]

ODD: Kinds = [
    lambda job, at: replace(job, service_class="soft", deadline_at=50.0 + 20_000.0 * at),
    lambda job, at: replace(job, service_class="hard", deadline_at=100.0 + 2_000.0 * at),
    lambda job, at: replace(job, on_miss="stop", deadline_at=-10.0 + 100.0 * at),
    lambda job, at: replace(job, queued_at=-5_000.0 * at, submitted_at=-5_000.0 * at),
    lambda job, _: replace(job, widths=(2, 4)),
    lambda job, _: replace(job, widths=(1_000,)),
    lambda job, _: replace(job, pinned=True),
    lambda job, _: replace(job, preemptible=False),
]


def plans(policy: str, *, seed: int, jobs: int, nodes: int, sets: int = 0) -> Iterator[bytes]:
    """Of a cold decision on plain and odd jobs, and of the two that follow it.

    `sets`: of nodes, to which jobs are tied.
    """
    truths, state = newcomers(jobs=jobs, nodes=nodes, seed=seed)
    state = odd(state, np.random.default_rng(seed), share=0.3 * (seed % 2))
    state = tied(state, np.random.default_rng(seed), sets=sets)
    model = costs("live", cluster_gpus=state.total_gpus)
    predictor = NoisyPredictor(truths, model, error=0.2)
    decide = find(policy).policy()
    for turn in range(3):
        plan = decide(state, predictor)
        yield codec.plan_bytes(plan)
        state = apply_plan(plan, state)
        state = underway(state, np.random.default_rng(seed)) if not turn else later(state)


def odd(state: ClusterState, draw: np.random.Generator, *, share: float) -> ClusterState:
    rows = [
        ODD[int(draw.integers(len(ODD)))](job, float(draw.random()))
        if draw.random() < share
        else job
        for job in state.jobs
    ]
    return replace(state, jobs=tuple(rows))


def tied(state: ClusterState, draw: np.random.Generator, *, sets: int) -> ClusterState:
    """Three jobs in ten may use some nodes only: nested, overlapping and disjoint sets of them."""
    if not sets:
        return state
    cuts = draw.integers(len(state.nodes) + 1, size=(sets, 2)).tolist()
    known = {
        f"set{number}": NodeSet(frozenset(node.id for node in state.nodes[min(cut) : max(cut)]))
        for number, cut in enumerate(cuts)
    }
    rows = [
        replace(job, eligible=f"set{int(draw.integers(sets))}") if draw.random() < 0.3 else job
        for job in state.jobs
    ]
    return replace(state, jobs=tuple(rows), sets=known)


@pytest.mark.slow
def test_jobs_are_placed_and_grown_in_cpython_as_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = ((1, 60, 30, 0), (2, 40, 10, 0), (1, 60, 30, 3), (2, 60, 30, 3))

    def decided() -> list[bytes]:
        found = [
            plan
            for seed, jobs, nodes, sets in cases
            for plan in plans("qos", seed=seed, jobs=jobs, nodes=nodes, sets=sets)
        ]
        decide = find("qos").policy()
        tied = restricted_cases(30)
        return found + [codec.plan_bytes(decide(case.state, case.predictor)) for case in tied]

    plainly = decided()
    monkeypatch.setattr(compiled, "MANY_ROWS", 1)
    assert decided() == plainly
    monkeypatch.setattr(compiled, "BITS", 1)
    assert decided() == plainly, "more cells of nodes than a mask has bits"


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("sets", [0, 3])
def test_a_crowd_is_decided_alike_where_numba_is_not_installed(
    sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "MANY_ROWS", 1)
    compiled_plans = list(plans("qos", seed=1, jobs=60, nodes=30, sets=sets))
    monkeypatch.setattr(compiled, "COMPILES", False)
    assert list(plans("qos", seed=1, jobs=60, nodes=30, sets=sets)) == compiled_plans


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("stops", [False, True])
def test_placing_all_is_placing_one_after_the_other(
    *, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "MANY_ROWS", 1)
    for seed in range(90):
        draw = np.random.default_rng(seed)
        free = draw.integers(0, 9, size=int(draw.integers(1, 150))).tolist()
        tries = draw.choice((0, 1, 2, 4, 8, 16), size=(80, 3)).astype(np.int64)
        gpus = draw.choice((1, 1, 2, 3, 8), size=80).astype(np.int64)
        names = [f"n{at}" for at in range(len(free))]
        sets = [frozenset(name for name in names if draw.random() < 0.5) for _ in range(seed % 3)]
        among = [([*sets, None])[int(draw.integers(len(sets) + 1))] for _ in range(80)]
        one, other = (Ledger(names, free, sets) for _ in range(2))
        found = []
        for widths, size, may in zip(tries.tolist(), gpus.tolist(), among, strict=True):
            tried = (one.place(width, size, may) for width in widths if width)
            nodes = next((got for got in tried if got), ())
            if stops and not nodes:
                break
            found.append(nodes)
        assert other.place_all(tries, gpus, stops=stops, among=among) == found
        assert (other.free, other.total_free) == (one.free, one.total_free)
        assert other.place(3, 1) == one.place(3, 1)


def test_a_value_changed_in_one_field_is_the_one_that_replace_makes() -> None:
    state = newcomers(jobs=1, nodes=1, seed=0)[1]
    one = state.jobs[0]
    assert replace_fields(one, widths=(1, 16)) == replace(one, widths=(1, 16))
    assert one.widths == (1, 2, 4, 8)


def test_a_job_on_other_widths_has_their_curve_and_leaves_its_own_alone() -> None:
    truths, state = newcomers(jobs=41, nodes=1, seed=0)  # of 40 models
    forecasts = Forecasts(state, NoisyPredictor(truths, costs("live", cluster_gpus=8)))
    one, other = state.jobs[0], state.jobs[40]
    before = forecasts.curve(one)
    narrow, alike = forecasts.on_widths(one, (1, 2)), forecasts.on_widths(other, (1, 2))
    again = replace(one, widths=(1, 2))
    assert narrow
    assert alike
    assert (narrow, forecasts.curve(narrow).widths) == (again, (1, 2))
    assert forecasts.curve(one) is before
    assert forecasts.curve(alike) is forecasts.curve(narrow)
    assert forecasts.curve(narrow) == Forecasts(state, forecasts.predictor).curve(again)


def test_a_job_is_not_put_on_a_width_that_makes_it_no_faster() -> None:
    truths, state = newcomers(jobs=1, nodes=2, seed=0)
    forecasts = Forecasts(state, NoisyPredictor(truths, costs("live", cluster_gpus=16)))
    assert forecasts.on_widths(state.jobs[0], (1, 2, 4, 8, 16)) is None  # of 16 nothing is known


def test_values_built_at_once_are_those_that_the_class_makes() -> None:
    why = reason("hopeless")
    one = Admit("team/job", 2, ("n0", "n1"), why)
    (other,) = construct_many(Admit, ["team/job"], [2], [("n0", "n1")], [why])
    assert (other, hash(other), repr(other), type(other)) == (one, hash(one), repr(one), Admit)
    with pytest.raises(AttributeError):
        other.workers = 3  # type: ignore[misc]
