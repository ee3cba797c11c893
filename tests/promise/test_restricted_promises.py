"""Promises of jobs that may use some nodes only, against a maximum flow.

What is planned for all claims together is laid out at every instant at which it changes: each job's
workers on nodes that it may use, those that run where they are.
"""

from dataclasses import replace
from random import Random

from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job, Promise
from laxity_scheduler.promising.promise import Judge
from tests.support.builders import MINUTE_EPOCHS
from tests.support.max_flow import Demand, fits
from tests.support.restricted_states import drawn, newcomers, workers_at

STATES = 150


def demands(state: ClusterState, judge: Judge, at_s: float) -> list[Demand]:
    found: list[Demand] = []
    everywhere = frozenset(node.id for node in state.nodes)
    for row in judge.reservations.claims.jobs:
        share = judge.reservations.shares[row.id]
        many = workers_at(share, at_s)
        stays = row.nodes[: min(many, share.workers_now)]  # else it stops, and starts elsewhere
        found += [(1, frozenset({node})) for node in stays]
        may = state.eligible_nodes(row)
        found.append((many - len(stays), everywhere if may is None else may))
    return found


def judged(state: ClusterState, asking: list[Job]) -> tuple[Judge, list[Job]]:
    for one in asking:
        state = state.with_job(one)
    judge = Judge(state, Forecasts(state, MINUTE_EPOCHS))
    return judge, [one for one in asking if isinstance(judge.verdict(one), Promise)]


def test_all_that_is_promised_can_be_laid_out_at_every_instant() -> None:
    given = turned_away = 0
    for seed in range(STATES):
        draw = Random(seed)
        state = drawn(draw)
        asking = newcomers(draw, state, epochs=4, slack=3.0)
        judge, promises = judged(state, asking)
        nodes = {node.id: node.gpus for node in state.nodes}
        reservations = judge.reservations
        shares = [reservations.shares[name] for name in reservations.claims.names]
        instants = {at_s for share in shares for at_s, _ in share.steps}
        instants |= {share.finish_s for share in shares if share.finish_s < float("inf")}
        for at_s in sorted(instants):
            planned = demands(state, judge, at_s)
            assert fits(planned, nodes), f"seed {seed}, {at_s} s from now: {planned} on {nodes}"
        tied = [one for one in asking if one.eligible]
        given += len([one for one in promises if one.eligible])
        turned_away += len(tied) - len([one for one in promises if one.eligible])
    assert given > STATES
    assert turned_away > STATES // 4


def test_of_jobs_that_must_run_at_once_as_many_are_promised_as_can_be_laid_out() -> None:
    """Neither more nor fewer, one after the other: nothing is left out to be careful."""
    refused = 0
    for seed in range(STATES // 2):
        draw = Random(f"at once {seed}")
        state = replace(drawn(draw), jobs=())
        state = replace(
            state, nodes=tuple(replace(node, free_gpus=node.gpus) for node in state.nodes)
        )
        nodes = {node.id: node.gpus for node in state.nodes}
        asking = newcomers(draw, state, epochs=4, slack=0.0)
        _, promises = judged(state, asking)
        kept: list[Demand] = []
        for one in asking:
            mine = (one.widths[0], state.eligible_nodes(one) or frozenset(nodes))
            possible = fits([*kept, mine], nodes)
            assert (one in promises) is possible, f"seed {seed}: {one.id} after {kept} on {nodes}"
            kept += [mine] if possible else []
            refused += not possible
    assert refused > STATES // 2


def test_the_flow_finds_a_way_round() -> None:
    nodes = {"a": 1, "b": 1, "c": 1}
    chain_of = [(1, frozenset("ab")), (1, frozenset("bc")), (1, frozenset("a"))]
    assert fits(chain_of, nodes)
    assert not fits([*chain_of, (1, frozenset("abc"))], nodes)
