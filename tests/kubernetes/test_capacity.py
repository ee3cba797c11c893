"""What can be promised on a real cluster: accelerators, quotas, and what the API server lets through."""

import json
from collections.abc import Iterator
from datetime import datetime

import pytest

from laxity import names
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.kubectl import tried
from tests.support.kubernetes.place import HARD, Place, annotations, complete, judged, running
from tests.support.kubernetes.service import Json, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

AMD, SLICE = "amd.com/gpu", "nvidia.com/mig-1g.5gb"
NODES = {"amd-0": {AMD: "2"}, "mixed-0": {"nvidia.com/gpu": "1", SLICE: "2"}}


@pytest.fixture
def mixed(there: Place, cluster: Cluster) -> Iterator[Place]:
    for name, offered in NODES.items():
        made = simulated_node(name, 0)
        room = {**made["status"]["allocatable"], **offered}
        made["status"] = {"allocatable": room, "capacity": room}
        assert cluster.ask("POST", "/api/v1/nodes", made)
    yield there
    for name in NODES:
        cluster.ask("DELETE", f"/api/v1/nodes/{name}")


def asking(there: Place, name: str, *counts: tuple[str, str], **asked: str) -> Json:
    made = there.job(name, {**HARD, "preemptible": "false", **asked})
    made["spec"]["template"]["spec"]["containers"] = [
        {
            "name": f"c{number}",
            "image": "none",
            "resources": {"limits": {resource: count}} if resource else {},
        }
        for number, (resource, count) in enumerate(counts)
    ]
    return made


def test_jobs_run_on_the_accelerators_that_they_ask_for(mixed: Place) -> None:
    wide = asking(mixed, "wide", (AMD, "1"), widths="3")
    wide["spec"] |= {"parallelism": 3, "completions": 3}
    mixed.apply(
        asking(mixed, "amd", (AMD, "1"), (AMD, "1")),
        asking(mixed, "slice", (SLICE, "2")),
        wide,
        asking(mixed, "tpu", ("google.com/tpu", "1")),
        asking(mixed, "cpu", ("", "")),
        asking(mixed, "two-kinds", (AMD, "1"), (SLICE, "1")),
    )
    for name, machine in (("amd", "amd-0"), ("slice", "mixed-0")):
        mixed.until_job(name, running, "runs")
        assert set(mixed.pods(name).values()) == {machine}
    refused = {
        "wide": "2 fit on the nodes it may use, amd-0/amd.com/gpu (2 GPUs)",
        "tpu": "it offers nvidia.com/gpu, google.com/tpu is asked",
        "cpu": "no container asks for a GPU",
        "two-kinds": "one kind of accelerator per Job",
    }
    for name, words in refused.items():
        told = mixed.until_job(name, judged, "is judged")
        assert verdict_of(told)["kind"] == "refusal", name
        assert words in annotations(told)[names.REASON]
        assert told["spec"]["suspend"]


def test_quotas_bound_widths_and_are_asked_anew_when_they_change(there: Place) -> None:
    hard = "--hard=requests.nvidia.com/gpu=2"
    there.kubectl("create", "quota", "team", hard)
    wide = there.job("wide", {**HARD, "widths": "3"})
    wide["spec"] |= {"parallelism": 3, "completions": 3}
    elastic = there.job("elastic", {**HARD, "widths": "1,2,4", "epochs": "60"})

    def is_read() -> bool:
        """Quotas are read every half minute: Jobs are made until one is judged by this one."""
        name = f"wide-{len(there.jobs())}"
        there.apply({**wide, "metadata": {**wide["metadata"], "name": name}})
        told = there.until_job(name, judged, "is judged")
        if verdict_of(told)["reason"]["code"] == "namespace_limits":
            return True
        there.kubectl("delete", "job", name)
        return False

    there.until(is_read, "the quota to be read")
    (told,) = there.jobs()
    name = told["metadata"]["name"]
    assert (
        "quota team of its namespace allows requests.nvidia.com/gpu 2"
        in (annotations(told)[names.REASON])
    )
    there.apply(elastic)
    there.until_job("elastic", lambda job: job["status"].get("ready") == 2, "runs on two")
    there.kubectl("delete", "job", "elastic")
    more = {"spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}
    there.kubectl("patch", "quota", "team", "-p", json.dumps(more))
    told = there.until_job(name, running, "runs when the quota allows it")
    assert verdict_of(told)["kind"] == "promise"


def test_of_two_jobs_that_a_quota_holds_one_at_a_time_the_second_is_promised_behind_the_first(
    there: Place,
) -> None:
    there.kubectl("create", "quota", "team", "--hard=requests.nvidia.com/gpu=1")

    def asks(name: str, deadline: str) -> Json:
        asked = {**HARD, "epochs": "6", "epoch-estimate": "10s", "deadline": deadline}
        there.apply(there.job(name, asked))
        return there.until_job(name, judged, "is judged")

    def is_read() -> bool:
        there.apply(two := asking(there, f"two-{len(there.jobs())}", ("nvidia.com/gpu", "2")))
        told = there.until_job(two["metadata"]["name"], judged, "is judged")
        there.kubectl("delete", "job", two["metadata"]["name"])
        return bool(verdict_of(told)["reason"]["code"] == "namespace_limits")

    there.until(is_read, "the quota to be read")
    told = asks("first", "30m")
    first = verdict_of(told)
    assert first["kind"] == "promise"
    created = datetime.fromisoformat(told["metadata"]["creationTimestamp"]).timestamp()
    alone_s = first["p90_at"] - created
    there.until_job("first", running, "runs")
    told = asks("soon", f"{1.5 * alone_s:.0f}s")
    assert verdict_of(told)["reason"]["code"] == "quota_promised_to_others"
    assert (
        f"quota {there.namespace}/team: the P90 finish would be" in annotations(told)[names.REASON]
    )
    later = verdict_of(asks("later", "30m"))
    assert later["kind"] == "promise"
    assert later["p90_at"] > first["p90_at"] + 0.5 * alone_s
    assert there.get("later")["spec"]["suspend"], "16 GPUs are there, and none in the quota"
    label = "batch.kubernetes.io/job-name=first"
    there.kubectl("annotate", "pods", "test.laxity/run-for=0.1s", "-l", label)
    there.until_job("first", complete, "ends")
    there.until_job("later", running, "runs when the quota has room")
    failed = there.kubectl("get", "events", "--field-selector", "reason=FailedCreate", "-o", "name")
    assert not failed, "no pod was asked for that the quota does not allow"


def test_a_job_that_may_not_be_started_holds_nothing_and_starts_when_it_is_changed(
    there: Place,
) -> None:
    rule = "!(object.metadata.name == 'denied' && !object.spec.suspend)"
    there.apply(*denying(there.namespace, rule))
    try:
        made = there.job("denied", HARD)
        there.apply({**made, "metadata": {**made["metadata"], "labels": {}}})
        start = ("patch", "job", "denied", "--dry-run=server", "-p", '{"spec": {"suspend": false}}')
        there.until(
            lambda: "not today" in tried(there.cluster, "-n", there.namespace, *start)[1],
            "the policy",
        )
        there.kubectl("label", "job", "denied", f"{names.MANAGED}=true")
        told = there.until_job(
            "denied", lambda job: "not today" in annotations(job).get(names.REASON, ""), "is told"
        )
        assert "tried again at" in annotations(told)[names.REASON]
        there.until(
            lambda: any(
                one["type"] == "Warning" and "not today" in one["message"]
                for one in there.events("denied")
            ),
            "an Event that says so",
        )
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            there.kubectl("delete", kind, f"deny-{there.namespace}")
    there.until(
        lambda: "not today" not in tried(there.cluster, "-n", there.namespace, *start)[1],
        "no policy",
    )
    there.kubectl("annotate", "job", "denied", "example.com/try=again")
    there.until_job("denied", running, "runs")


def denying(namespace: str, rule: str) -> list[Json]:
    """A policy for one namespace, as some team may have it."""
    kind, name = "ValidatingAdmissionPolicy", f"deny-{namespace}"
    version, only = "admissionregistration.k8s.io/v1", {"kubernetes.io/metadata.name": namespace}
    what = {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["jobs"],
    }
    policy = {
        "matchConstraints": {"resourceRules": [what]},
        "validations": [{"expression": rule, "message": "not today"}],
    }
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": only}},
    }
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": policy},
        {
            "apiVersion": version,
            "kind": f"{kind}Binding",
            "metadata": {"name": name},
            "spec": binding,
        },
    ]


def test_a_neighbour_that_takes_promised_gpus_is_told_and_not_named(there: Place) -> None:
    asked = {**HARD, "epochs": "60", "deadline": "40m", "preemptible": "false"}
    for name in ("holder", "waiter"):
        made = there.job(name, asked)
        pod = made["spec"]["template"]["spec"]
        pod["nodeSelector"] = {"kubernetes.io/hostname": "gpu-3"}
        pod["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "4"}
        there.apply(made)
        told = there.until_job(name, judged, "is judged")
        assert verdict_of(told)["kind"] == "promise"
    there.until_job("holder", running, "runs")
    container = {**pod["containers"][0], "name": "secret"}
    theirs = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "secret", "namespace": there.namespace},
        "spec": {"nodeName": "gpu-3", "containers": [container]},
    }
    there.apply(theirs)

    def is_told() -> bool:
        return any(one["reason"] == "GpusTakenByOthers" for one in there.events("waiter"))

    there.until(is_told, "the waiter to be told")
    told = there.get("waiter")
    assert "pods that laxity does not manage hold 4 of 4 GPUs" in annotations(told)[names.REASON]
    assert "secret" not in json.dumps(there.events("waiter"))
