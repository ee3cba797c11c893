"""One registry: what is served, simulated, replayed and asked what-if is the same function."""

import json
from pkgutil import iter_modules

import pytest
from typer.testing import CliRunner

from laxity.cli.main import app
from laxity_lab.simulate import run
from laxity_scheduler import policies
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.decision import Promised
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies.registry import REGISTRY, UnknownPolicyError, find
from laxity_scheduler.process.open_policies import find_policy
from laxity_scheduler.process.policy_table import POLICY_TEXTS, VARIANTS
from laxity_scheduler.store import codec
from tests.support.random_states import cases

STATES = 20


def test_each_page_of_policies_is_registered() -> None:
    pages = {page.name for page in iter_modules(policies.__path__)} - {"registry"}
    assert pages == {policy.page or name for name, policy in REGISTRY.items()}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_service_and_simulator_decide_the_same_to_the_byte(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Policy] = {}
    monkeypatch.setattr(run, "literal", lambda *_, policy, **__: given.setdefault("policy", policy))
    run.run_cycles("no trace", run.Setting(name, 2, 8, literal_cycle=True), [])
    served, simulated = find_policy(name), given["policy"]
    for case in cases(STATES):
        plans = [with_follow_ups(one)(case.state, case.predictor) for one in (served, simulated)]
        assert codec.plan_bytes(plans[0]) == codec.plan_bytes(plans[1])


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_what_is_said_of_promises_is_what_a_policy_does(name: str) -> None:
    decide = find(name).policy()
    plans = [decide(case.state, case.predictor) for case in cases(STATES)]
    gives = any(isinstance(made, Promised) for plan in plans for made in plan.decisions)
    (text,) = [text for text in (*POLICY_TEXTS, *VARIANTS) if text.name == name]
    assert gives == (text.promises == "gives")


def test_policies_are_listed_one_a_line_with_source_and_promises() -> None:
    shown = CliRunner().invoke(app, ["policies"])
    lines = [line.split() for line in shown.output.splitlines()]
    rows = json.loads(CliRunner().invoke(app, ["policies", "--json"]).output)["policies"]
    assert shown.exit_code == 0
    assert [line for line in shown.output.splitlines() if line != line.rstrip()] == []
    listed = [line[0] for line in lines[1 : len(POLICY_TEXTS) + 1]]
    assert [*listed, *(text.name for text in VARIANTS)] == [row["name"] for row in rows]
    assert ["fifo", "-", "first", "in,", "first", "out,"] in [line[:6] for line in lines]
    assert {row["name"] for row in rows} == set(REGISTRY)


def test_a_name_that_is_nearly_right_is_told_the_right_one() -> None:
    with pytest.raises(UnknownPolicyError, match="did you mean pickyman"):
        find("pickman")
