"""A promise is given wherever a packing of whole workers on nodes finds room with a tenth of the time to spare."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Promised
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.promising.claims import deadline_in_force, holds_promise
from tests.promise.test_toy_world import POLICY, whole_world
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised
from tests.support.packing_oracle import Block, find_schedule
from tests.support.toy_world import ToyWorld

SPARE = 0.1
LOOSER = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)


class Asked(NamedTuple):
    """A hard job as it came, with its own deadline or the earliest with room: room, and a promise?"""

    gpus_per_worker: int
    earliest: bool
    room: bool
    promised: bool


def ask_in(world: ToyWorld) -> list[Asked]:
    """All that its hard jobs ask as they come, and would ask with the earliest deadline with room."""
    asked, seen = list[Asked](), set[str]()

    def watched(state: ClusterState, predictor: Predictor) -> Plan:
        plan = POLICY(state, predictor)
        for one in state.jobs:
            if one.service_class == "hard" and one.verdict is None and one.id not in seen:
                seen.add(one.id)
                asked.extend(_ask(state, one, predictor, plan))
        return plan

    world.run(watched, until=max(one.submitted_at for one in world.arrivals))
    return asked


def _ask(state: ClusterState, newcomer: Job, predictor: Predictor, plan: Plan) -> Iterator[Asked]:
    size, given = newcomer.gpus_per_worker, is_promised(plan, newcomer)
    yield Asked(
        size, earliest=False, room=given or has_room(state, newcomer, predictor), promised=given
    )
    for trial in _with_deadlines(state, newcomer, predictor):
        if has_room(trial, newcomer, predictor):
            given = is_promised(POLICY(trial, predictor), newcomer)
            yield Asked(size, earliest=True, room=True, promised=given)
            return


def has_room(state: ClusterState, newcomer: Job, predictor: Predictor) -> bool:
    """Whether there is a schedule; if so, it is looked at."""
    schedule = find_schedule(state, newcomer.id, predictor, spare=SPARE)
    if schedule is None:
        return False
    forecasts, gpus = Forecasts(state, predictor), {node.id: node.gpus for node in state.nodes}
    for block in schedule:
        at_s = block.from_s
        beside = [other for other in schedule if other.from_s <= at_s < other.until_s]
        taken = sum(other.gpus for other in beside if other.node == block.node)
        assert taken <= gpus[block.node], f"{block} does not fit on its node: {beside}"
    for one in state.jobs:
        if one.id == newcomer.id or holds_promise(one, state.now):
            _look_at(one, [block for block in schedule if block.job == one.id], state, forecasts)
    return True


def _look_at(one: Job, mine: list[Block], state: ClusterState, forecasts: Forecasts) -> None:
    """Its last workers end in time, a tenth later than it needs, on a width that it has."""
    end_s = max(block.until_s for block in mine)
    last = [block for block in mine if block.until_s == end_s]
    assert end_s <= deadline_in_force(one) - state.now + 1e-6, f"{one.id} is late"
    assert len(last) in one.widths
    if not stopping(one):
        needs_s = (1.0 + SPARE) * forecasts.rest_s(one, len(last))
        assert end_s - last[0].from_s == pytest.approx(needs_s)
    if one.workers and not stopping(one):
        assert [block.node for block in mine] == list(one.nodes)


def _with_deadlines(
    state: ClusterState, newcomer: Job, predictor: Predictor
) -> Iterator[ClusterState]:
    """The snapshot in which it asks for a deadline that leaves a tenth to spare, then for later ones."""
    forecasts = Forecasts(state, predictor)
    need_s = min(forecasts.rest_s(newcomer, width) for width in newcomer.widths)
    for looser in LOOSER:
        due_at = state.now + (1.0 + SPARE) * need_s * looser + 1e-3
        yield state.with_job(replace(newcomer, deadline_at=due_at))


def is_promised(plan: Plan, newcomer: Job) -> bool:
    return any(isinstance(told, Promised) and told.job == newcomer.id for told in plan.decisions)


def crowded_world(seed: int) -> ToyWorld:
    """Whole nodes, and jobs that come three times as fast."""
    world = whole_world(seed)
    world.arrivals = [
        replace(
            one,
            submitted_at=one.submitted_at / 3.0,
            deadline_at=one.deadline_at - one.submitted_at * 2.0 / 3.0,
        )
        for one in world.arrivals
    ]
    world.__post_init__()
    return world


def test_room_with_a_tenth_to_spare_is_promised_as_often_as_it_was() -> None:
    asked = [one for seed in range(20) for one in ask_in(crowded_world(seed)) if one.room]
    told = Counter((one.gpus_per_worker == 8, one.promised) for one in asked)

    assert told[True, False] <= 2, "refused, of whole nodes: as they came, or by another deadline"
    assert told[True, True] >= 32
    assert told[False, False] <= 1, "smaller ones"
    assert told[False, True] >= 145


def test_the_oracle_finds_no_room_where_no_node_is_empty_in_time() -> None:
    stay = [
        job(f"s{number}", gpus_per_worker=4, running=1, nodes=(f"n{number}",), preemptible=False)
        for number in range(2)
    ]
    soon, later = (
        job("large", gpus_per_worker=8, epochs=3, due_at=due_at) for due_at in (700.0, 800.0)
    )

    assert not has_room(cluster(gpus=(8, 8), jobs=[*stay, soon]), soon, MINUTE_EPOCHS)
    assert has_room(cluster(gpus=(8, 8), jobs=[*stay, later]), later, MINUTE_EPOCHS)


def test_the_oracle_has_no_promised_job_stopped_or_late() -> None:
    large = job("large", gpus_per_worker=8, epochs=3, due_at=300.0)
    runs = promised("runs", 700.0, gpus_per_worker=8, running=1)
    waits = promised("waits", 350.0, gpus_per_worker=8, epochs=3)
    patient = promised("waits", 400.0, gpus_per_worker=8, epochs=3)

    assert not has_room(cluster(gpus=8, jobs=[runs, large]), large, MINUTE_EPOCHS)
    assert not has_room(cluster(gpus=8, jobs=[waits, large]), large, MINUTE_EPOCHS)
    assert has_room(cluster(gpus=8, jobs=[patient, large]), large, MINUTE_EPOCHS)


def test_the_oracle_places_nobody_where_a_later_one_needs_the_node() -> None:
    ends = job("ends", gpus_per_worker=4, epochs=1, running=1, preemptible=False)
    waits = promised("waits", 260.0, gpus_per_worker=8, epochs=3)
    soon, later = (
        job("small", gpus_per_worker=4, epochs=3, due_at=due_at) for due_at in (300.0, 500.0)
    )

    assert not has_room(cluster(gpus=8, jobs=[ends, waits, soon]), soon, MINUTE_EPOCHS)
    assert has_room(cluster(gpus=8, jobs=[ends, waits, later]), later, MINUTE_EPOCHS)
