"""A Job that was refused for want of nodes asks again as soon as there are nodes for it."""

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import JobStatusRecord, digest_terms, verdict_text
from laxity_scheduler.model.job import Refusal
from laxity_scheduler.model.reasons import Reason, reason
from tests.support.manifests import job, node
from tests.support.seen_nodes import Seen

CORDONED = {"unschedulable": True}
NO_NODE = reason("no_eligible_node", asks="kind=b", nodes="a", shut_out="b: cordoned")


def refused(name: str, why: Reason, *, gpus: int = 1, asks: Json | None = None) -> Json:
    made = job(name, gpus=gpus, deadline="5m", epoch_estimate="10s")
    made["spec"]["template"]["spec"] |= {"nodeSelector": asks} if asks else {}
    state = JobStatusRecord(wanted=0, terms=digest_terms(made))
    made["metadata"]["annotations"] |= {
        names.STATUS: state.to_text(),
        names.VERDICT: verdict_text(Refusal(why)),
    }
    return made


def asking(seen: Seen) -> list[str]:
    return [row.id for row in seen.look().jobs if row.asked]


def test_a_job_whose_only_node_was_cordoned_asks_again_when_it_is_uncordoned() -> None:
    seen = Seen(
        node("b", labels={"kind": "b"}, **CORDONED), refused("tied", NO_NODE, asks={"kind": "b"})
    )
    assert asking(seen) == []
    seen.put(node("b", labels={"kind": "b"}))
    assert asking(seen) == ["default/tied"]
    assert asking(seen) == ["default/tied"], "until it has its verdict"


def test_a_job_waits_until_the_taint_of_the_cordon_is_gone_as_well() -> None:
    """Asked in between it would be refused for want of free GPUs, and never again."""
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    seen = Seen(
        node("b", labels={"kind": "b"}, taints=[taint], **CORDONED),
        refused("tied", NO_NODE, asks={"kind": "b"}),
    )
    seen.put(node("b", labels={"kind": "b"}, taints=[taint]))
    assert asking(seen) == []
    seen.put(node("b", labels={"kind": "b"}))
    assert asking(seen) == ["default/tied"]


def test_a_job_asks_again_when_a_node_comes_that_holds_its_worker() -> None:
    why = reason("does_not_fit_any_node", gpus_per_worker=8, largest_gpus=4)
    seen = Seen(refused("large", why, gpus=8))
    assert asking(seen) == []
    seen.put(node("c", gpus=8))
    assert asking(seen) == ["default/large"]


def test_a_job_refused_for_another_reason_does_not_ask_again() -> None:
    why = reason("capacity_promised_to_others", needed_gpus=1, free_gpus=0, late_s=5.0)
    seen = Seen(node("b", **CORDONED), refused("late", why))
    seen.put(node("b"))
    assert asking(seen) == []
