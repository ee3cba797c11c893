"""What is written is read back equal, bit for bit: snapshots, plans, differences."""

import json
import struct
from dataclasses import fields, is_dataclass, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity_profiler.estimate import Progress, Workload
from laxity_scheduler.model.cluster import ClusterState, Hold, Node, NodeSet
from laxity_scheduler.model.decision import Decision
from laxity_scheduler.model.job import Job, Offer, Refusal
from laxity_scheduler.model.reasons import Reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.store import codec, differences
from tests.support.builders import cluster, job
from tests.support.random_values import Maker

SEEDS = st.integers(0, 2**32)


def snapshot(seed: int) -> ClusterState:
    maker = Maker(seed)
    return ClusterState(
        now=maker.make(float),
        nodes=maker.rows(Node, 4),
        jobs=maker.rows(Job, 4),
        holds=maker.make(tuple[Hold, ...]),
        budgets=maker.make(dict[str, float] | None),
        cycle=maker.make(int),
        sets=maker.make(dict[str, NodeSet] | None),
    )


def exact(value: Any) -> Any:
    """The value with every float as its bits: 0.0 and -0.0, 1 and 1.0 are not the same."""
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, *(exact(getattr(value, f.name)) for f in fields(value)))
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, tuple):
        return tuple(exact(item) for item in value)
    if isinstance(value, dict):
        return tuple(sorted((key, exact(item)) for key, item in value.items()))
    return (type(value).__name__, value)


@given(seed=SEEDS)
def test_a_snapshot_is_read_back_bit_for_bit(seed: int) -> None:
    state = snapshot(seed)
    again = codec.load_state(codec.encode_record(state))
    assert exact(again) == exact(state)
    assert codec.encode_record(again) == codec.encode_record(state)


@given(seed=SEEDS)
def test_a_plan_is_read_back_bit_for_bit(seed: int) -> None:
    maker = Maker(seed)
    plan = Plan(tuple(maker.make(Decision) for _ in range(4)), maker.make(float))
    assert exact(codec.load_plan(codec.plan_bytes(plan))) == exact(plan)


@given(seed=SEEDS, many=st.integers(0, 3))
def test_a_plan_written_decision_by_decision_has_the_bytes_of_the_whole(
    seed: int, many: int
) -> None:
    maker = Maker(seed)
    plan = Plan(tuple(maker.make(Decision) for _ in range(many)), maker.make(float))
    text = codec.encode_plan(plan)
    assert text.text == codec.encode_record(plan)
    assert [codec.from_json(Decision, orjson.loads(body)) for body in text.bodies] == [
        codec.from_json(Decision, said) for said in text.decisions
    ]


@given(old=SEEDS, new=SEEDS)
def test_a_snapshot_is_rebuilt_from_the_one_before_and_the_difference(old: int, new: int) -> None:
    before, after = snapshot(old), snapshot(new)
    found = json.loads(json.dumps(differences.snapshot_difference(before, after)))
    assert exact(differences.apply_difference(before, found)) == exact(after)


def test_a_difference_holds_only_what_changed() -> None:
    before = cluster(jobs=[job("a"), job("b", submitted_at=1.0)], now=1.0)
    after = cluster(jobs=[before.jobs[0], job("c", submitted_at=2.0)], now=2.0)
    found = differences.snapshot_difference(before, after)
    assert [row["id"] for row in found["jobs"]["rows"]] == ["team/c"]
    assert found["jobs"]["gone"] == ["team/b"]
    assert set(found) == {"now", "jobs"}


def test_sets_of_nodes_cost_nothing_where_there_are_none_and_are_written_once() -> None:
    """So a journal written before there were any can still be read."""
    text = codec.encode_record(cluster(jobs=[job("a")]))
    assert b"eligible" not in text
    assert b"sets" not in text
    assert codec.load_state(text).sets is None
    nodes = NodeSet(frozenset(f"n{number}" for number in range(500)), "too small")
    jobs = [job(str(number), eligible="gpu=a100") for number in range(100)]
    state = cluster(jobs=jobs, sets={"gpu=a100": nodes})
    assert codec.encode_record(state).count(b'"n499"') == 1
    assert codec.load_state(codec.encode_record(state)) == state
    later = replace(state, now=1.0, jobs=(*state.jobs[1:], job("z", eligible="gpu=a100")))
    found = differences.snapshot_difference(state, later)
    assert "sets" not in found
    assert differences.apply_difference(state, found).sets is state.sets


def test_what_cannot_be_read_is_said_with_what_it_should_be() -> None:
    with pytest.raises(codec.CodecError, match="is no Job"):
        codec.load_job({"id": "a", "colour": "blue"})


def test_numbers_of_other_libraries_are_written_as_plain_ones() -> None:
    import numpy as np

    widths: Any = (np.int64(2),)
    strange = Offer("soft", np.float64(1.5), widths, np.float64("inf"), 0.0)
    plain = Offer("soft", 1.5, (2,), float("inf"), 0.0)
    one, other = (
        codec.encode_record(Refusal(Reason("fits"), (offer,))) for offer in (strange, plain)
    )
    assert one == other


def test_an_idle_job_takes_few_bytes() -> None:
    plain = Job("team/a", Workload("mlp", 10), 0.0, progress=Progress())
    assert len(codec.encode_record(plain)) < 100
