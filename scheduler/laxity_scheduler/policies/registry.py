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
    `argument`: what its page's `from_argument` makes it from, where the name is POLICY:ARGUMENT.
    """

    name: str
    kind: Kind = "snapshot"
    elastic: bool = False
    page: str = ""
    part: str = "decide"
    argument: str = ""

    @property
    def _module(self) -> Any:
        return import_module(f"laxity_scheduler.policies.{self.page or self.name}")

    @property
    def plans_by_claims(self) -> bool:
        """Whether it plans around GPUs that are kept for coming steps, and on one product of several."""
        return "qos" in {self.page, self.name}

    def check_file(self) -> None:
        """ValueError where a file cannot be used, and another rule would decide in its name."""
        if self.argument and self.page == "learned":
            load_policy(Path(self.argument))

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
            module.from_argument(self.argument) if self.argument else getattr(module, self.part)
        )
        if self.kind == "order" and packing != "skip":
            decide = ordered(self.order(packing))
        if self.plans_by_claims:
            decide = on_one_product(on_own_nodes(decide))
        if admission is None:
            return decide
        find_late = getattr(module, "find_late_promises", None)
        return with_admission(decide, parse_admission(admission), find_late)


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


TAKE_ARGUMENTS: Final = frozenset({"learned", "qos"})


class UnknownPolicyError(ValueError):
    """No policy of that name."""


def find(name: str) -> Registered:
    """UnknownPolicyError names what there is.

    `learned:FILE` decides by the weights of that file, `qos:predictability=0.5` with that setting.
    """
    page, _, argument = name.partition(":")
    if page in TAKE_ARGUMENTS and argument:
        policy = replace(REGISTRY[page], name=name, page=page, argument=argument)
        if page == "qos":
            try:
                policy.policy()
            except ValueError as error:
                raise UnknownPolicyError(str(error)) from error
        return policy
    if name not in REGISTRY:
        near = get_close_matches(name, REGISTRY, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; qos is the default"
        message = f"unknown policy {name!r}: one of {', '.join(sorted(REGISTRY))}{hint}"
        raise UnknownPolicyError(message)
    return REGISTRY[name]


def plans_by_claims(name: str) -> bool:
    """`Registered.plans_by_claims` of the policy of this name; not of a learned one of MLflow's registry."""
    page, _, _ = name.partition(":")
    return page in REGISTRY and REGISTRY[page].plans_by_claims


def parse_admission(text: str) -> Admission:
    """ValueError says what may be written."""
    for kind in ADMISSIONS:
        if text == kind:
            return kind
    raise ValueError(f"admission is {' or '.join(ADMISSIONS)}, not {text!r}")
