"""A glance at a whole plan never passes what a look at each decision refuses."""

from dataclasses import replace
from random import Random

import pytest

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Decision, Refuse
from laxity_scheduler.model.job import Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import PlanError, check_plan, fits_at_a_glance
from laxity_scheduler.policies.qos import decide
from tests.support.random_states import cases

WHY = reason("order", policy="test")


def spoilt(state: ClusterState, plan: Plan, draw: Random) -> Plan:
    """The plan with something else in it: a start more, other nodes or widths, a refusal."""
    decisions: list[Decision] = list(plan.decisions)
    names = [job.id for job in state.jobs] + ["team/nobody"]
    nodes = [node.id for node in state.nodes] + ["gone"]
    name, workers = draw.choice(names), draw.choice((0, 1, 1, 2, 4))
    placed = tuple(draw.choice(nodes) for _ in range(draw.choice((workers, workers, 1))))
    kind = draw.randint(0, 3)
    if kind == 0:
        decisions.append(Admit(name, workers, placed, WHY))
    elif kind == 1:
        decisions.insert(0, Refuse(name, Refusal(WHY), WHY))
    else:
        starts = [at for at, one in enumerate(decisions) if isinstance(one, Admit)]
        for at in starts[: kind - 1]:
            decisions[at] = Admit(names[at % len(names)], workers, placed, WHY)
    return Plan(tuple(decisions))


def refusal_of(plan: Plan, state: ClusterState) -> str:
    try:
        check_plan(plan, state)
    except PlanError as error:
        return str(error)
    return ""


def test_a_glance_says_what_a_close_look_says(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, refused = 0, 0
    for case in cases(120):
        draw = Random(case.seed)
        state = replace(case.state, holds=())
        plan = decide(state, case.predictor)
        for changed in (plan, *(spoilt(state, plan, draw) for _ in range(6))):
            glance = fits_at_a_glance(state, changed.decisions)
            fast = refusal_of(changed, state)
            with monkeypatch.context() as patch:
                patch.setattr("laxity_scheduler.plan_check.fits_at_a_glance", lambda *_: False)
                close = refusal_of(changed, state)
            assert fast == close
            assert not (glance and close)
            passed, refused = passed + glance, refused + bool(close)
    assert passed > 100
    assert refused > 100
