"""What the pods of a Job ask of their node, and which nodes do, by Kubernetes' own rules.

A node is eligible if it has all labels of the template's `nodeSelector`, meets all of one of its
required affinity terms (terms are alternatives; what laxity added to keep off nodes is left out),
and has no NoSchedule or NoExecute taint that the template does not tolerate. Taints that Kubernetes
itself sets on nodes in trouble are passed over: they come and go.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import orjson

from laxity import json_tree
from laxity.job.accelerators import GPU
from laxity.parsing import MOST, whole_number
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.node_rows.accelerator_nodes import NOT_COUNTED_ON, count_offered
from laxity_k8s.objects.node_rows.affinity import NAME, REQUIRED, own_terms

KEEPS_OFF: Final = ("NoSchedule", "NoExecute")
PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
LONGEST: Final = 200  # of a name
ASKING: Final = ("affinity", "nodeName", "nodeSelector", "tolerations")  # fields of a pod's spec
KEPT_TEXTS: Final = 16_384  # as many as there may be Jobs whose nodes are named
LONGEST_KEPT: Final = 1_024  # bytes: with what is read of them, some 64 MiB at most

Requirement = tuple[str, str, tuple[str, ...]]  # (key, operator, values)
Toleration = tuple[str, str, str, str]  # (key, operator, value, effect)


@dataclass(frozen=True)
class Term:
    """All of these must hold: of labels, and of the node's name."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()


@dataclass(frozen=True)
class Asks:
    """Equal for Jobs that ask the same. `terms` are alternatives; none: any node has the labels.

    `resource` is the name of the accelerators that the pods use.
    """

    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    resource: str = GPU

    @cached_property
    def text(self) -> str:
        """In words, as short as a name; others that ask something else have another one."""
        parts = [] if self.resource == GPU else [self.resource]
        parts += [f"{key}={value}" for key, value in self.labels]
        either = " or ".join(
            " and ".join(map(requirement_text, (*item.labels, *item.names))) for item in self.terms
        )
        parts += [f"({either})" if len(self.terms) > 1 else either] if either else []
        parts += [f"tolerating {toleration_text(item)}" for item in self.tolerations]
        whole = ", ".join(parts) or "a node without taints"
        if len(whole) <= LONGEST:
            return whole
        digest = hashlib.blake2b(whole.encode(), digest_size=4).hexdigest()
        return f"{whole[:LONGEST]}... ({digest})"


NOTHING: Final = Asks()


def asks_of(template: Json) -> Asks:
    """What a pod or a pod template asks for, laxity's own words left out.

    Thousands of Jobs are made from a few templates: what was read once is known by its text.
    """
    spec, resource = json_tree.mapping_at(template, "spec"), pods.resource_of(template)
    fields = {key: spec[key] for key in ASKING if spec.get(key)}
    if resource != GPU:
        return replace(_read_template(template), resource=resource)
    if not fields:
        return NOTHING
    try:
        text = orjson.dumps({"kind": template.get("kind"), "spec": fields})
    except orjson.JSONEncodeError:
        return _read_template(template)
    return read_cached(text) if len(text) <= LONGEST_KEPT else _read_template(template)


@lru_cache(maxsize=KEPT_TEXTS)
def read_cached(text: bytes) -> Asks:
    return _read_template(orjson.loads(text))


def _read_template(template: Json) -> Asks:
    spec = json_tree.mapping_at(template, "spec")
    labels = tuple(
        sorted(
            (str(key), str(item))
            for key, item in json_tree.mapping_at(spec, "nodeSelector").items()
        )
    )
    selector_terms = json_tree.list_at(
        spec, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"
    )
    terms = tuple(_read_term(item) for item in own_terms(selector_terms)) if selector_terms else ()
    terms = () if Term() in terms else terms
    if spec.get("nodeName") and template.get("kind") != "Pod":
        here = ((NAME, "In", (str(spec["nodeName"]),)),)
        terms = tuple(Term(item.labels, item.names + here) for item in terms or (Term(),))
    tolerations = tuple(
        sorted({_read_toleration(item) for item in json_tree.list_at(spec, "tolerations")})
    )
    return Asks(labels, terms, tolerations) if labels or terms or tolerations else NOTHING


def _read_term(term: Mapping[str, Any]) -> Term:
    return Term(
        _read_requirements(term.get("matchExpressions")),
        _read_requirements(term.get("matchFields")),
    )


def _read_requirements(said: object) -> tuple[Requirement, ...]:
    requirements = []
    for item in said if isinstance(said, list) else ():
        values = json_tree.list_at(item, "values")
        texts = tuple(sorted(str(value) for value in values))
        requirements.append(
            (str(json_tree.get_in(item, "key")), str(json_tree.get_in(item, "operator")), texts)
        )
    return tuple(sorted(requirements))


def _read_toleration(item: object) -> Toleration:
    def word_at(name: str) -> str:
        return str(json_tree.get_in(item, name) or "")

    return word_at("key"), word_at("operator") or "Equal", word_at("value"), word_at("effect")


def shut_out(asks: Asks, node: Json, *, gpu_taints: bool) -> str:
    """Why pods that ask so may not go to this node, in words; "" if they may.

    `gpu_taints`: the cluster adds tolerations of taints named after resources that a pod asks for
    (admission plugin ExtendedResourceToleration).
    """
    labels, name = json_tree.labels_of(node), json_tree.object_id(node)
    for key, wanted in asks.labels:
        if labels.get(key) != wanted:
            return f"label {_has_label(labels, key)}, {wanted} is asked"
    if asks.terms and not any(_is_met(term, labels, name) for term in asks.terms):
        return _find_unmet(asks.terms, labels, name)
    added = asks.resource if gpu_taints else ""
    for taint in json_tree.list_at(node, "spec", "taints"):
        if taint.get("key") == NOT_COUNTED_ON:  # whoever tolerates all taints waits as well
            return "no node of its pool came in time"
        if _keeps_off(taint) and not _is_tolerated(asks.tolerations, taint, added):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"taint {taint.get('key')}{value}:{taint.get('effect')} is not tolerated"
    return ""


def is_suited(asks: Asks, node: Json) -> bool:
    """Whether a pod that asks so, its tolerations all said, may go to this node."""
    return asks.resource in count_offered(node) and not shut_out(asks, node, gpu_taints=False)


def _keeps_off(taint: Mapping[str, Any]) -> bool:
    key = str(taint.get("key") or "")
    return taint.get("effect") in KEEPS_OFF and not key.startswith(PASSING)


def _is_tolerated(
    tolerations: Sequence[Toleration], taint: Mapping[str, Any], added: str = ""
) -> bool:
    """Whether it is tolerated; `added` is the key of the toleration that the cluster adds."""
    key, value = str(taint.get("key") or ""), str(taint.get("value") or "")
    if key == added:
        return True
    return any(
        effect in ("", taint.get("effect"))
        and (wanted == key or (not wanted and operator == "Exists"))
        and (operator == "Exists" or (operator == "Equal" and word == value))
        for wanted, operator, word, effect in tolerations
    )


def _is_met(term: Term, labels: Mapping[str, str], name: str) -> bool:
    return all(_is_satisfied(item, labels) for item in term.labels) and all(
        _is_satisfied(item, {NAME: name}) for item in term.names
    )


def _is_satisfied(requirement: Requirement, there: Mapping[str, str]) -> bool:
    key, operator, values = requirement
    label = there.get(key)
    match operator:
        case "In":
            return label in values
        case "NotIn":
            return label not in values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case "Gt" | "Lt":
            return _is_comparable(operator, label, values)
        case _:
            return False


def _is_comparable(operator: str, found: str | None, values: Sequence[str]) -> bool:
    label = whole_number(found, least=-MOST)
    limit = whole_number(values[0], least=-MOST) if values else None
    if label is None or limit is None:
        return False
    return label > limit if operator == "Gt" else label < limit


def _find_unmet(terms: Sequence[Term], labels: Mapping[str, str], name: str) -> str:
    """Of one term the requirement that fails; of several, all of them."""
    if len(terms) > 1:
        return f"none of {len(terms)} affinity terms is met"
    failed = [item for item in terms[0].labels if not _is_satisfied(item, labels)]
    if failed:
        return f"label {_has_label(labels, failed[0][0])}, {requirement_text(failed[0])} is asked"
    return f"its name is {name}, {requirement_text(terms[0].names[0])} is asked"


def _has_label(labels: Mapping[str, str], key: str) -> str:
    return f"{key} is {labels[key]}" if key in labels else f"{key} is missing"


def requirement_text(requirement: Requirement) -> str:
    key, operator, values = requirement
    return f"{key} {operator}" + (f" ({', '.join(values)})" if values else "")


def toleration_text(toleration: Toleration) -> str:
    key, operator, value, effect = toleration
    same = f"={value}" if operator == "Equal" else "" if operator == "Exists" else f" {operator}"
    return f"{key or 'all taints'}{same}" + (f":{effect}" if effect else "")


def adds_tolerations(template: Json, pod: Json) -> bool | None:
    """Whether the cluster let this pod tolerate taints of its GPUs; None if it does not show."""
    taint = {"key": pods.resource_of(pod), "value": "present", "effect": KEEPS_OFF[0]}
    if not pods.count_gpus(pod) or _is_tolerated(asks_of(template).tolerations, taint):
        return None
    return _is_tolerated(asks_of(pod).tolerations, taint)
