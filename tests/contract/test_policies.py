"""One exam for all policies."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laxity_scheduler.claims import Terms
from laxity_scheduler.engine import Policy
from laxity_scheduler.follow_up import with_follow_up
from laxity_scheduler.policies import edf, fifo, qos
from laxity_scheduler.state import ClusterState
from tests.builders import MINUTE_EPOCHS, Curve, cluster
from tests.contract.policy_exam import PREDICTORS, clusters, examine

POLICIES = {
    "fifo": fifo.decide,
    "edf": edf.decide,
    "qos": qos.decide,
    "qos, growing anywhere": qos.QosPolicy(terms=Terms(grow_anywhere=True)),
    "qos, impatient": qos.QosPolicy(patience=10.0, cooldown_epochs=0.0, least_run_s=0.0),
    "qos with follow-ups": with_follow_up(qos.decide),
}
every_policy = pytest.mark.parametrize(
    "policy", [pytest.param(p, id=n) for n, p in POLICIES.items()]
)


@every_policy
@settings(max_examples=250)
@given(state=clusters(), predictor=st.sampled_from(PREDICTORS))
def test_a_policy_passes_the_exam(policy: Policy, state: ClusterState, predictor: Curve) -> None:
    examine(policy, state, predictor)


@pytest.mark.soak
@every_policy
@settings(max_examples=100_000)
@given(state=clusters(), predictor=st.sampled_from(PREDICTORS))
def test_a_policy_passes_a_long_exam(policy: Policy, state: ClusterState, predictor: Curve) -> None:
    examine(policy, state, predictor)


@every_policy
def test_an_empty_cluster_gives_an_empty_plan(policy: Policy) -> None:
    plan = policy(cluster(gpus=[4, 4], jobs=[]), MINUTE_EPOCHS)
    assert plan.decisions == ()


@every_policy
def test_jobs_on_a_cluster_without_nodes_are_not_admitted(policy: Policy) -> None:
    from tests.builders import job

    plan = policy(cluster(gpus=[], jobs=[job("a"), job("b", due_at=9e9)]), MINUTE_EPOCHS)
    assert not [d for d in plan.decisions if type(d).__name__ == "Admit"]
