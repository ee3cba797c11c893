"""The admission rule in front of policies that promise nothing themselves, or otherwise."""

import json

import pytest

from laxity_scheduler.model.decision import Admit, Forecasted, Promised, Refuse, Wait
from laxity_scheduler.model.job import Promise
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.shares.admission import with_admission
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised
from tests.support.command_line import run_simulate
from tests.support.simulated import SAMPLES

DEADLINE_POLICIES = ("edf", "chronus", "qos", "elasticflow")

UNTIL = "3750000"  # the first 50 jobs or so


@pytest.mark.parametrize("name", DEADLINE_POLICIES)
def test_who_cannot_be_in_time_behind_the_promised_does_not_enter(name: str) -> None:
    """10 minutes' work each on one GPU: one is in time by 650 s, the second is not."""
    jobs = [job("a", due_at=650.0), job("b", due_at=650.0, submitted_at=1.0)]
    state = cluster(gpus=1, jobs=jobs, now=1.0)
    plan = find(name).policy(admission="greedy")(state, MINUTE_EPOCHS)
    told = {d.job: type(d) for d in plan.decisions if isinstance(d, Promised | Refuse)}
    assert told == {"team/a": Promised, "team/b": Refuse}
    assert [d.job for d in plan.decisions if isinstance(d, Admit)] == ["team/a"]
    after = apply_plan(plan, state)
    again = find(name).policy(admission="greedy")(after, MINUTE_EPOCHS)
    assert not [d for d in again.decisions if isinstance(d, Admit | Refuse)]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("fifo", {Promised, Admit, Wait}),
        ("edf", {Promised, Admit, Wait}),
        ("srtf", {Promised, Admit}),
    ],
)
def test_the_policy_s_own_order_decides_who_starts(name: str, kinds: set[type]) -> None:
    """Both are promised: 300 s each, due at 700 s. The first that came, is due or is shorter."""
    jobs = [
        job("a", epochs=5, due_at=700.0),
        job("b", epochs=5, due_at=701.0, submitted_at=1.0),
    ]
    state = cluster(gpus=1, jobs=jobs, now=1.0)
    plan = find(name).policy(admission="greedy")(state, MINUTE_EPOCHS)
    assert {type(d) for d in plan.decisions} == kinds
    assert [d.job for d in plan.decisions if isinstance(d, Admit)] == ["team/a"]


def test_without_promises_the_qos_policy_tells_forecasts_alone() -> None:
    state = cluster(gpus=1, jobs=[job("a", due_at=650.0), promised("kept", 9_000.0)])
    plan = with_admission(find("qos").policy(), "none")(state, MINUTE_EPOCHS)
    told = {d.job: type(d) for d in plan.decisions if isinstance(d, Promised | Forecasted | Refuse)}
    assert told["team/a"] is Forecasted
    assert isinstance(apply_plan(plan, state).by_id["team/kept"].verdict, Promise)


@pytest.mark.parametrize("name", DEADLINE_POLICIES)
def test_a_job_that_fits_no_node_is_promised_nothing(name: str) -> None:
    """There are 2 GPUs in time, but each on another node, and a worker needs both."""
    wide = job("wide", due_at=650.0, gpus_per_worker=2)
    state = cluster(gpus=[1, 1], jobs=[wide])
    plan = find(name).policy(admission="greedy")(state, MINUTE_EPOCHS)
    (told,) = [d for d in plan.decisions if isinstance(d, Promised | Refuse)]
    assert isinstance(told, Refuse)
    assert told.reason.code == "does_not_fit_cluster"


@pytest.mark.parametrize("policy", ["edf", "chronus", "qos"])
def test_the_command_gives_promises_to_policies_that_have_none(policy: str) -> None:
    words = ["--policy", policy, "--trace", str(SAMPLES / "itp" / "195job.csv"), "--nodes", "2"]
    figures = []
    for admission in ("none", "greedy"):
        code, said = run_simulate(*words, "--until", UNTIL, "--admission", admission, "--json")
        assert code == 0, said
        figures.append(json.loads(said))
    none, greedy = figures
    assert (none["promises"], none["refused"]) == (0, 0)
    assert greedy["promises"] > 0
    assert greedy["promises"] + greedy["refused"] == greedy["jobs"] == none["jobs"] > 10
