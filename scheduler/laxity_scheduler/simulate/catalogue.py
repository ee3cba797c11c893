"""The policies by name, and in which of three ways each is simulated.

An order (rigid jobs, queue and ledger kept), a share rule (elastic jobs, arrays kept), or the
literal cycle with the policy's own `decide`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from typing import Final, Literal

from laxity_scheduler.engine import Policy
from laxity_scheduler.order import EDF, FIFO, SJF, Order, Packing
from laxity_scheduler.order import policy_of as ordered
from laxity_scheduler.shares.admission import with_admission
from laxity_scheduler.shares.rule import Admission, ShareRule
from laxity_scheduler.shares.rule import policy_of as shared

Way = Literal["order", "rule", "cycle"]


@dataclass(frozen=True, slots=True)
class Listed:
    """How a policy is found. `elastic`: jobs with a throughput table may change their width."""

    name: str
    way: Way
    elastic: bool
    module: str = ""


ADMISSIONS: Final[tuple[Admission, ...]] = ("none", "greedy", "priced")
ORDERS: Final[Mapping[str, Order]] = {order.name: order for order in (FIFO, SJF, EDF)}
_CYCLES: Final = {
    "srtf": False,
    "las": False,
    "pickyman": False,
    "pickyman_blind": False,
    "pickyman_unguarded": False,
    "pickyman_zero": False,
    "chronus": False,
    "drf": True,
    "optimus": True,
    "pollux": True,
    "qos": True,
    "qos_open_to_all": True,
}
_RULES: Final = ("elasticflow", "laxity", "edf_elastic")


class UnknownPolicyError(ValueError):
    """No policy of that name."""


def listed() -> dict[str, Listed]:
    """All policies by name."""
    found = {name: Listed(name, "order", elastic=False) for name in ORDERS}
    found |= {name: Listed(name, "rule", elastic=True, module=name) for name in _RULES}
    found |= {name: Listed(name, "cycle", elastic, name) for name, elastic in _CYCLES.items()}
    return found


def find(name: str) -> Listed:
    """UnknownPolicyError names what there is."""
    known = listed()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        asked = f"; did you mean {near[0]}?" if near else ""
        message = f"unknown policy {name!r}: one of {', '.join(sorted(known))}{asked}"
        raise UnknownPolicyError(message)
    return known[name]


def order_of(name: str, packing: Packing) -> Order:
    return replace(ORDERS[name], packing=packing)


def rule_of(name: str, admission: str | None = None) -> ShareRule:
    """A share rule; `admission` is none, greedy, priced or priced:KAPPA, or the rule's own."""
    rule: ShareRule = import_module(f"laxity_scheduler.policies.{name}").RULE
    if admission is None:
        return rule
    kind, kappa = parse_admission(admission)
    drops = rule.drops and kind == "greedy"
    return replace(rule, admission=kind, kappa=kappa or rule.kappa, drops=drops)


def parse_admission(text: str) -> tuple[Admission, float | None]:
    """`priced:0.1` as ("priced", 0.1). ValueError says what may be written."""
    kind, _, value = text.partition(":")
    kinds = {name: name for name in ADMISSIONS}
    if kind not in kinds or (value and kind != "priced"):
        message = f"admission is none, greedy, priced or priced:KAPPA, not {text!r}"
        raise ValueError(message)
    kappa = _number(value) if value else None
    if kappa is not None and not 0 < kappa < float("inf"):
        message = f"kappa of priced:KAPPA is a positive number, not {value!r}"
        raise ValueError(message)
    return kinds[kind], kappa


def _number(text: str) -> float:
    """Not a number: nan."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def decide_of(name: str, *, packing: Packing = "skip", admission: str | None = None) -> Policy:
    """The policy as a function, whatever its way; `admission` as in `rule_of`, for all of them."""
    way = find(name).way
    if way == "rule":
        return shared(rule_of(name, admission))
    policy = ordered(order_of(name, packing)) if way == "order" else _cycle_of(name)
    return policy if admission is None else with_admission(policy, *parse_admission(admission))


def _cycle_of(name: str) -> Policy:
    module, _, choice = name.partition("_")
    found = import_module(f"laxity_scheduler.policies.{module}")
    decide: Policy = getattr(found, choice or "decide")
    return decide
