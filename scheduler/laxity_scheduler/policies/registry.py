"""The policies by name, the same for the service, the simulator, replay and what-if.

A policy is a page of this folder that has a `decide`, and a line here. Where it is an order
(`ORDER`), the simulator may keep its queue between events instead of asking `decide` about a
snapshot at each. A share rule (`RULE`) gives or refuses promises itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

from laxity_scheduler.allocation.order import Order, Packing
from laxity_scheduler.allocation.order import policy_of as ordered
from laxity_scheduler.frame.curve import Curve
from laxity_scheduler.learned.weights_file import load_policy
from laxity_scheduler.loans.own_nodes import on_own_nodes
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Policy
from laxity_scheduler.qos.product_choice import on_one_product
from laxity_scheduler.shares.admission import with_admission
from laxity_scheduler.shares.rule import Admission, ShareRule
from laxity_scheduler.shares.rule import policy_of as shared

Kind = Literal["order", "rule", "snapshot"]
ADMISSIONS: Final[tuple[Admission, ...]] = ("none", "greedy")


@dataclass(frozen=True, slots=True)
class Registered:
    """`elastic`: in simulations, jobs with a throughput table may change their width.

    `page`: its module in this folder, if that has another name; `part`: what decides there.
    `file`: what `part` is made from by the page's `from_file`, where the name is POLICY:FILE.
    `predictability`: that of the snapshots it decides on, where the name is POLICY:predictability=P.
    """

    name: str
    kind: Kind = "snapshot"
    elastic: bool = False
    page: str = ""
    part: str = "decide"
    file: str = ""
    predictability: float = 0.0

    @property
    def _module(self) -> Any:
        return import_module(f"laxity_scheduler.policies.{self.page or self.name}")

    @property
    def plans_by_claims(self) -> bool:
        """Whether it plans around GPUs that are kept for coming steps, and on one product of several."""
        return "qos" in {self.page, self.name}

    def see(self, state: ClusterState) -> ClusterState:
        """The snapshot as this policy decides on it."""
        if state.predictability == self.predictability:
            return state
        return replace(state, predictability=self.predictability)

    def check_file(self) -> None:
        """ValueError where `file` cannot be used, and another rule would decide in its name."""
        if self.file:
            load_policy(Path(self.file))

    def order(self, packing: Packing = "skip") -> Order:
        order: Order = self._module.ORDER
        return replace(order, packing=packing)

    def rule(self, admission: str | None = None) -> ShareRule:
        """A share rule; `admission` is none, greedy, or the rule's own."""
        rule: ShareRule = self._module.RULE
        if admission is None:
            return rule
        kind = parse_admission(admission)
        return replace(rule, admission=kind, drops=rule.drops and kind == "greedy")

    def policy(self, *, packing: Packing = "skip", admission: str | None = None) -> Policy:
        """What decides; `admission` as in `rule`, for policies of all kinds."""
        if self.kind == "rule":  # it counts a start for each change of width
            return on_own_nodes(shared(self.rule(admission)), Curve.start_s)
        module = self._module
        decide: Policy = (
            module.from_file(Path(self.file)) if self.file else getattr(module, self.part)
        )
        if self.kind == "order" and packing != "skip":
            decide = ordered(self.order(packing))
        if self.plans_by_claims:
            decide = self._seeing(on_one_product(on_own_nodes(decide)))
        if admission is None:
            return decide
        find_late = getattr(module, "find_late_promises", None)
        return with_admission(decide, parse_admission(admission), find_late)

    def _seeing(self, decide: Policy) -> Policy:
        return lambda state, predictor: decide(self.see(state), predictor)


REGISTRY: Final[Mapping[str, Registered]] = {
    policy.name: policy
    for policy in (
        Registered("fifo", "order"),
        Registered("sjf", "order"),
        Registered("edf", "order"),
        Registered("srtf"),
        Registered("las"),
        Registered("chronus"),
        Registered("pickyman"),
        Registered("pickyman_blind", page="pickyman", part="blind"),
        Registered("pickyman_unguarded", page="pickyman", part="unguarded"),
        Registered("pickyman_zero", page="pickyman", part="zero"),
        Registered("drf", elastic=True),
        Registered("optimus", elastic=True),
        Registered("pollux", elastic=True),
        Registered("aryl", elastic=True),
        Registered("learned", elastic=True),
        *(
            Registered(name, elastic=True, page="learned", part=name)
            for name in ("optimus_with_promises", "drf_with_promises")
        ),
        Registered("elasticflow", "rule", elastic=True),
        Registered("edf_elastic", "rule", elastic=True),
        Registered("qos", elastic=True),
        Registered("qos_open_to_all", elastic=True, page="qos", part="open_to_all"),
    )
}


class UnknownPolicyError(ValueError):
    """No policy of that name."""


def find(name: str) -> Registered:
    """UnknownPolicyError names what there is.

    `learned:FILE` decides by the weights of that file, `qos:predictability=P` with that setting.
    """
    page, _, argument = name.partition(":")
    if page == "learned" and argument:
        return replace(REGISTRY[page], name=name, page=page, file=argument)
    if page == "qos" and argument:
        predictability = _parse_predictability(name, argument)
        return replace(REGISTRY[page], name=name, page=page, predictability=predictability)
    if name not in REGISTRY:
        near = get_close_matches(name, REGISTRY, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; qos is the default"
        message = f"unknown policy {name!r}: one of {', '.join(sorted(REGISTRY))}{hint}"
        raise UnknownPolicyError(message)
    return REGISTRY[name]


def find_planner(name: str) -> Registered | None:
    """The policy of this name if it plans by claims; None also for a learned one of MLflow's registry."""
    page, _, _ = name.partition(":")
    return find(name) if page in REGISTRY and REGISTRY[page].plans_by_claims else None


def _parse_predictability(name: str, argument: str) -> float:
    setting, _, text = argument.partition("=")
    try:
        value = float(text) if setting == "predictability" else -1.0
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        message = f"qos takes qos:predictability=P with P from 0 to 1, not {name!r}"
        raise UnknownPolicyError(message)
    return value


def parse_admission(text: str) -> Admission:
    """ValueError says what may be written."""
    for kind in ADMISSIONS:
        if text == kind:
            return kind
    raise ValueError(f"admission is {' or '.join(ADMISSIONS)}, not {text!r}")
