"""Everything that a worker requests of a node counts: in the ledger, in verdicts and in starts.

Epochs take a minute on one worker.
"""

from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.capacity.eligibility import count_slots
from laxity_scheduler.capacity.ledger import Ledger, LedgerError
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Preempt, Promised, Refuse, Wait
from laxity_scheduler.model.job import (
    Job,
    Needs,
    NodeRoom,
    WorkerShape,
    describe_needs,
    workers_that_fit,
)
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan, fit_plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.policies.registry import REGISTRY, find
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised

CPU, PORT = "cpu", "host port 29500/TCP"
SIXTY = ((CPU, 60_000),)
LIGHT = ((CPU, 4_000),)
ROOM = {CPU: 96_000}


def state_of(*jobs: Job, nodes: int = 4) -> ClusterState:
    """Empty nodes of 8 GPUs and 96 CPUs."""
    state = cluster(gpus=[8] * nodes, jobs=jobs)
    rows = [replace(row, room=ROOM, free_room=ROOM) for row in state.nodes]
    return replace(state, nodes=tuple(rows))


def decided(state: ClusterState) -> Plan:
    plan = decide(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    return plan


def kinds(plan: Plan, kind: type) -> list[str]:
    return [one.job for one in plan.decisions if isinstance(one, kind)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("shape", "fit"),
    [
        pytest.param(WorkerShape(2), 4, id="GPUs alone"),
        pytest.param(WorkerShape(1, SIXTY), 1, id="CPUs are least"),
        pytest.param(WorkerShape(1, LIGHT), 8, id="GPUs are least"),
        pytest.param(WorkerShape(1, ((PORT, 1),)), 1, id="one of each host port"),
        pytest.param(WorkerShape(1, (("example.com/fpga", 1),)), 0, id="what no node lists"),
        pytest.param(WorkerShape(16), 0, id="more GPUs than it has"),
    ],
)
def test_a_node_holds_the_least_over_all_that_workers_request(shape: WorkerShape, fit: int) -> None:
    assert workers_that_fit(NodeRoom(8, ROOM), shape) == fit


def test_where_nothing_is_said_of_a_node_only_gpus_count() -> None:
    assert workers_that_fit(NodeRoom(8), WorkerShape(1, SIXTY)) == 8


def test_a_ledger_spends_all_that_workers_request_and_gets_it_back() -> None:
    ledger = Ledger(["a", "b"], [8, 8], (), [ROOM, ROOM])

    heavy = ledger.place(2, 1, needs=SIXTY)
    light = ledger.place(6, 1, needs=LIGHT)

    assert heavy == ("a", "b")
    assert light is not None
    assert ledger.place(1, 1, needs=SIXTY) is None
    with pytest.raises(LedgerError, match="node a has too little cpu"):
        ledger.take(["a"], 1, needs=SIXTY)
    ledger.give(["a"], 1, needs=SIXTY)
    assert ledger.slots(1, needs=SIXTY) == 1
    assert ledger.copy().place(1, 1, needs=SIXTY) == ("a",)


def test_a_ledger_keeps_gpus_free_beside_used_up_cpus_for_nobody_who_needs_both() -> None:
    ledger = Ledger(["a"], [8], (), [ROOM])
    ledger.take(["a"], 1, needs=((CPU, 90_000),))

    assert (ledger.slots(1), ledger.slots(1, needs=LIGHT)) == (7, 1)
    assert ledger.place_on(["a"], 2, 1, needs=LIGHT) is None


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_policy_starts_only_what_fits(name: str) -> None:
    jobs = [job(f"j{number}", needs=SIXTY, epochs=5) for number in range(6)]
    state = state_of(*jobs)

    plan = find(name).policy()(state, MINUTE_EPOCHS)
    check_plan(plan, state)

    starts = [one for one in plan.decisions if isinstance(one, Admit)]
    nodes = [name for start in starts for name in start.nodes]
    assert len(nodes) == len(set(nodes)) <= 4


def test_a_start_that_a_node_has_too_few_cpus_for_is_no_plan() -> None:
    state = state_of(job("a", needs=SIXTY, workers=(2,)), nodes=2)
    (admit,) = [one for one in decided(state).decisions if isinstance(one, Admit)]

    wrong = Plan((replace(admit, nodes=("n0", "n0")),))

    assert set(admit.nodes) == {"n0", "n1"}
    assert [misfit.problem for misfit in fit_plan(wrong, state).dropped] == [
        "node n0 has too little cpu for 2 of its workers"
    ]


def test_what_no_node_holds_is_refused_with_all_that_a_worker_requests() -> None:
    needs = ((CPU, 120_000), ("memory", 500 << 30))
    plan = decided(state_of(job("a", needs=needs, due_at=9e4)))

    (refused,) = [one for one in plan.decisions if isinstance(one, Refuse)]
    assert refused.reason.text == (
        "each worker requests cpu 120, memory 500Gi of one node, beside 1 GPU; of 1 worker 0 fit on "
        "the nodes that it may use when these are empty"
    )


def test_promises_are_given_to_no_more_than_fit_at_once() -> None:
    """Each takes ten minutes, and has eleven."""
    jobs = [
        job(f"j{number}", needs=needs, epochs=10, due_at=660.0)
        for number, needs in enumerate([SIXTY, ((CPU, 50_000),)] * 3)
    ]
    plan = decided(state_of(*jobs))

    assert len(kinds(plan, Promised)) == len(kinds(plan, Admit)) == 4
    assert len(kinds(plan, Refuse)) == 2


def test_those_that_take_turns_are_promised_in_turn() -> None:
    jobs = [job(f"j{number}", needs=SIXTY, epochs=10, due_at=1500.0) for number in range(6)]
    plan = decided(state_of(*jobs))

    assert len(kinds(plan, Promised)) == 6
    (wait, *_) = [one for one in plan.decisions if isinstance(one, Wait)]
    assert wait.reason.text == (
        "1 worker with cpu 60 each beside 1 GPU need room on nodes; 0 would fit now"
    )


def test_light_jobs_use_the_gpus_that_heavy_ones_leave() -> None:
    heavy = [job(f"h{number}", needs=SIXTY, epochs=10) for number in range(4)]
    light = [job(f"l{number}", needs=LIGHT, epochs=10) for number in range(28)]

    assert len(kinds(decided(state_of(*heavy, *light)), Admit)) == 32


def test_nobody_is_stopped_who_leaves_no_room_for_what_is_needed() -> None:
    """Both run on the only node: one with most CPUs, one with few."""
    rows = (
        job("much", needs=SIXTY, epochs=1000, running=1),
        job("little", needs=LIGHT, epochs=1000, running=1),
        promised("new", 900.0, needs=SIXTY, epochs=10),
    )
    state = state_of(*rows, nodes=1)
    (full,) = (replace(row, free_room={CPU: 32_000}) for row in state.nodes)
    plan = decided(replace(state, nodes=(full,)))

    assert kinds(plan, Preempt) == ["team/much"]


def test_slots_are_counted_on_the_nodes_that_a_job_may_use() -> None:
    state = state_of(nodes=2)
    assert count_slots(state, job("a", needs=SIXTY)) == 2
    assert describe_needs((("pods", 1), (PORT, 1))) == PORT


def test_needs_are_told_in_the_units_in_which_pods_ask_for_them() -> None:
    needs = (
        ("cpu", 100),
        ("memory", 64 << 20),
        ("ephemeral-storage", 3 << 30),
        ("fpga", 2_000_000),
    )
    told = "cpu 0.1, memory 64Mi, ephemeral-storage 3Gi, fpga 2000000"
    assert describe_needs(needs) == told


def shared(*jobs: Job, cpu_milli: int = 64_000) -> ClusterState:
    """Four nodes of 8 GPUs and so many CPUs, less what the workers of these jobs have."""
    state = state_of(*jobs)
    room, rows = {CPU: cpu_milli}, []
    for row in state.nodes:
        taken = [
            dict(one.needs).get(CPU, 0) for one in jobs for name in one.nodes if name == row.id
        ]
        rows.append(replace(row, room=room, free_room={CPU: cpu_milli - sum(taken)}))
    return replace(state, nodes=tuple(rows))


def filling(needs: Needs = SIXTY, due_at: float = 1200.0) -> list[Job]:
    """One on each node, ten minutes from its end."""
    return [
        promised(f"h{n}", due_at, needs=needs, epochs=10, running=1, nodes=(f"n{n}",))
        for n in range(4)
    ]


def small(amount: int, **fields: Any) -> list[Job]:
    return [job(f"l{n}", needs=((CPU, amount),), epochs=30, **fields) for n in range(28)]


def run_beside() -> list[Job]:
    """They have the 7 other GPUs of each node and cannot be stopped."""
    return [
        job(
            f"l{n}",
            needs=((CPU, 500),),
            epochs=90,
            running=1,
            nodes=(f"n{n % 4}",),
            preemptible=False,
        )
        for n in range(28)
    ]


def test_small_jobs_use_the_gpus_beside_workers_that_fill_nodes_while_another_waits_for_its_turn() -> (
    None
):
    waits = promised("next", 1500.0, needs=SIXTY, epochs=10)
    plan = decided(shared(*filling(), waits, *small(500)))

    assert len(kinds(plan, Admit)) == 28
    assert [wait.job for wait in plan.decisions if isinstance(wait, Wait)] == ["team/next"]


def test_who_sits_beside_them_leaves_the_cpus_that_the_next_one_needs() -> None:
    """14 CPUs are free beside each, and the next one needs all but 4 of a node."""
    waits = promised("next", 1500.0, needs=SIXTY, epochs=10)
    plan = decided(shared(*filling(((CPU, 50_000),)), waits, *small(4_000, preemptible=False)))

    nodes = [name for one in plan.decisions if isinstance(one, Admit) for name in one.nodes]
    assert sorted(nodes) == ["n0", "n1", "n2", "n3"]


def test_whoever_fills_a_node_runs_on_and_the_next_starts_in_its_place_beside_small_jobs() -> None:
    """Small ones, which cannot be stopped, have 7 GPUs of each node."""
    waits = promised("next", 1500.0, needs=SIXTY, epochs=10)
    meanwhile = decided(shared(*filling(), waits, *run_beside()))
    one_ended = decided(shared(*filling()[1:], waits, *run_beside()))

    (again,) = [one for one in meanwhile.decisions if isinstance(one, Wait)]
    assert (again.job, kinds(meanwhile, Preempt)) == ("team/next", [])
    promises = [one.promise for one in meanwhile.decisions if isinstance(one, Promised)]
    assert [one.p90_at for one in promises] == pytest.approx([600.0] * 4 + [1200.0], abs=1.0)
    (start,) = [one for one in one_ended.decisions if isinstance(one, Admit)]
    assert (start.job, start.nodes) == ("team/next", ("n0",))


def test_gpus_that_small_jobs_have_beside_filling_workers_are_promised_to_nobody() -> None:
    """When those that fill nodes end, a GPU of each is free; the others are taken for 90 minutes."""
    asking = [job(f"p{n}", needs=((CPU, 500),), epochs=10, due_at=1500.0) for n in range(6)]
    plan = decided(shared(*filling(), *run_beside(), *asking))

    given = {name for name in kinds(plan, Promised) if name.startswith("team/p")}
    assert (len(given), len(kinds(plan, Refuse))) == (4, 2)
