"""Jobs that anybody might write: random fields of batch/v1 and of their pods, random annotations.

What is wrong with the annotations is known when they are drawn. Each Job has a twin without laxity
and without GPUs: how that one ends on the same cluster is how the Job was meant to end.
"""

import copy
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from laxity import names

Json = dict[str, Any]
URGENT: Final = "random-jobs-urgent"  # a PriorityClass of the cluster
FAILS: Final = "test.laxity/fail-with"  # worker 0 fails with this exit code
LONG: Final = "x" * 200_000
FULL: Final = "x" * 261_500  # of the 262,144 bytes that an object's annotations may have

# Texts that can be meant, and those that cannot, by annotation.
TEXTS: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "deadline": (
        ("20m", "2h", "1h30m", "1d", " 45m ", "0.5h", "5s"),
        ("20", "soon", "", "-5m", "99999d", "2027-01-31T18:00", "30m1h", "PT2H", "²h"),
    ),
    "class": (("hard", "soft", "best_effort"), ("gold", "HARD", "")),
    "widths": (
        ("1", "2", "1,2", "1..4", "auto", "2,4"),
        ("0", "-1", "4..1", "two", "1,,2", "9999"),
    ),
    "epochs": (("1", "3", "10"), ("0", "-1", "1.5", "ten", "9" * 30)),
    "epoch-estimate": (("1s", "2s", "0.5s"), ("2", "fast", "0s")),
    "preemptible": (("true", "false"), ("yes", "True", "")),
    "on-miss": (("continue", "stop"), ("explode",)),
    "model": (("resnet", "shared/resnet", "résumé"), (" ", "a\tb", "x" * 300)),
    "samples": (("1000",), ("0", "many")),
    "batch-size": (("32",), ("-32", "3e2")),
    "dataset-bytes": (("0", "1000000"), ("-1", "1GB")),
    "attempt": (("1", "2"), ("0", "first")),
    "fresh": (("true", "false"), ("1",)),
    "resumes": (("true", "false"), ("1",)),
    "entry": (("train:main", "/train/train.py:main"), ("train", "train.py main", "")),
    "parameters": (("{}", '{"alpha": 0.5}'), ("[1", "NaN", "[]")),
    "submitted-at": (("2026-01-01T00:00:00Z",), ("yesterday", "2026-01-01T00:00:00")),
    "idempotency-key": (("key",), ("", "k" * 300)),
}
STRANGE: Final = ("dedline", "priority", "Deadline")  # no annotations of laxity
# What only laxity writes: here somebody else did.
FORGED: Final[Mapping[str, Sequence[str]]] = {
    "verdict": ("promised", "{", "[]", '{"kind": "promise"}', "null"),
    "status": ("{}", "{", '{"resumed_at": 1e400}', '{"wanted": "two"}', "[1, 2]"),
    "reason": ("because",),
    "nodes": ('["gpu-0"]', "gpu-0", "[[]]"),
    "seal": ("00.00",),
    "stop": ("{}", "now"),
    "resize-to": ("4", "²"),
    "term": ("1", "x"),
    "cycle": ("-1",),
}
OTHERS: Final[Mapping[str, str]] = {
    "example.com/note": "ein Überblick ✓",
    "example.com/long": LONG,
    "kubectl.kubernetes.io/default-container": "train",
}


@dataclass(frozen=True)
class Drawn:
    """A Job as somebody writes it, and annotations whose texts cannot be meant."""

    job: Json
    wrong: frozenset[str]

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])

    def twin(self) -> Json:
        """The same Job without laxity, not suspended, whose pods need no GPU."""
        text = json.dumps(self.job).replace(self.name, twin_of(self.name))
        job: Json = json.loads(text)
        meta, pod = job["metadata"], job["spec"]["template"]["spec"]
        meta["labels"].pop(names.MANAGED)
        meta["annotations"] = {
            key: text
            for key, text in meta["annotations"].items()
            if not key.startswith(names.DOMAIN) and text is not FULL and len(text) < len(LONG)
        }
        job["spec"]["suspend"] = False
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            container.pop("resources", None)
        return job


def twin_of(name: str) -> str:
    return name.replace("job-", "twin-")


def is_offered(pod: Json) -> bool:
    """Whether a node of four nvidia.com/gpu has what one pod asks for."""
    kinds = accelerators(pod)
    limits = [one.get("resources", {}).get("limits", {}) for one in pod["containers"]]
    return (
        kinds <= {"nvidia.com/gpu"}
        and sum(int(one.get("nvidia.com/gpu", 0)) for one in limits) <= 4
    )


def accelerators(pod: Json) -> set[str]:
    """Kinds that its containers ask for."""
    limits = [
        one.get("resources", {}).get("limits", {})
        for one in (*pod["containers"], *pod.get("initContainers", ()))
    ]
    return {key for asked in limits for key, count in asked.items() if "/" in key and count != "0"}


def draw(seed: int, number: int, namespace: str) -> Drawn:
    """The Job of this number: always the same one."""
    luck = random.Random(f"{seed}-{number}")
    annotations, wrong = _annotations(luck)
    spec = _spec(luck, f"job-{number:03}")
    meta = {
        "name": f"job-{number:03}",
        "namespace": namespace,
        "labels": {names.MANAGED: "true", **luck.choice(({}, {"team": "vision"}))},
        "annotations": annotations,
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    return Drawn(job, wrong)


def _annotations(luck: random.Random) -> tuple[dict[str, str], frozenset[str]]:
    """Most Jobs have a few that can be meant; one in three has something that cannot."""
    chosen = [key for key in TEXTS if luck.random() < _likely(key)]
    said = {key: luck.choice(TEXTS[key][0]) for key in chosen}
    wrong = set()
    if chosen and luck.random() < 0.25:
        key = luck.choice(chosen)
        said[key] = luck.choice(TEXTS[key][1])
        wrong.add(key)
    if luck.random() < 0.04:
        key = luck.choice(STRANGE)
        said[key] = "1h"
        wrong.add(key)
    if "deadline" not in said and said.get("class") in ("hard", "soft"):
        wrong.add("deadline")
    if "deadline" in said and said.get("class") == "best_effort":
        wrong.add("class")
    for key in FORGED:
        if luck.random() < 0.03:
            said[key] = luck.choice(FORGED[key])
    found = {f"{names.DOMAIN}/{key}": text for key, text in said.items()}
    found |= {key: text for key, text in OTHERS.items() if luck.random() < 0.05}
    if luck.random() < 0.01:
        found["example.com/full"] = FULL
    return found, frozenset(wrong)


def _likely(key: str) -> float:
    return {"deadline": 0.6, "epochs": 0.5, "epoch-estimate": 0.8, "widths": 0.25}.get(key, 0.06)


def _spec(luck: random.Random, name: str) -> Json:
    spec: Json = {"template": _template(luck, name)}
    maybe = _maybe(luck)
    maybe(spec, "completionMode", 0.7, "Indexed", "Indexed", "NonIndexed")
    maybe(spec, "parallelism", 0.9, 1, 1, 2, 3, 4, 0)
    maybe(spec, "completions", 0.8, 1, 2, 3, 4, 6, 0)
    if luck.random() < 0.4:  # the usual shape of a training
        spec["completions"] = spec["parallelism"] = luck.choice((1, 2, 4))
    maybe(spec, "suspend", 0.7, True, True, False)
    maybe(spec, "backoffLimit", 0.6, 0, 1000, 1000, 2_147_483_647)
    maybe(spec, "activeDeadlineSeconds", 0.1, 3600, 100_000)
    maybe(spec, "ttlSecondsAfterFinished", 0.1, 0, 1, 3600)
    maybe(spec, "podReplacementPolicy", 0.4, "Failed", "Failed", "TerminatingOrFailed")
    maybe(spec, "managedBy", 0.04, "kubernetes.io/job-controller", "example.com/other")
    if spec.get("completionMode") == "Indexed":
        _index_rules(luck, spec)
    if luck.random() < 0.15:
        spec["podFailurePolicy"] = _failure_policy(luck, spec)
    if luck.random() < 0.04:
        spec["manualSelector"] = True
        spec["selector"] = {"matchLabels": {"mine": name}}
        spec["template"]["metadata"]["labels"]["mine"] = name
    if FAILS in spec["template"]["metadata"]["annotations"]:  # it fails for good, and soon
        spec["backoffLimitPerIndex" if "backoffLimitPerIndex" in spec else "backoffLimit"] = 0
    return spec


def _maybe(luck: random.Random) -> Callable[..., None]:
    def put(table: Json, key: str, share: float, *values: object) -> None:
        if luck.random() < share:
            table[key] = copy.deepcopy(luck.choice(values))

    return put


def _index_rules(luck: random.Random, spec: Json) -> None:
    if luck.random() < 0.15:
        spec.pop("backoffLimit", None)
        spec["backoffLimitPerIndex"] = luck.choice((0, 1000))
        if luck.random() < 0.6:
            spec["maxFailedIndexes"] = luck.choice((0, 1, 2))
    if luck.random() < 0.12:
        rule = luck.choice(
            ({"succeededIndexes": "0"}, {"succeededCount": 1}, {"succeededIndexes": "0-1"})
        )
        spec["successPolicy"] = {"rules": [rule]}


def _failure_policy(luck: random.Random, spec: Json) -> Json:
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    action = luck.choice(
        ("FailJob", "FailIndex") if "backoffLimitPerIndex" in spec else ("FailJob",)
    )
    codes = {"operator": "In", "values": [42]}
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": disrupted},
            {"action": action, "onExitCodes": codes},
        ]
    }


def _template(luck: random.Random, name: str) -> Json:
    notes = {"test.laxity/run-for": f"{luck.choice((0.2, 0.5, 1.0, 2.0))}s"}
    pod: Json = {"restartPolicy": "Never", "containers": [_container(luck)]}
    maybe = _maybe(luck)
    if luck.random() < 0.1:
        notes[FAILS] = luck.choice(("1", "42", "137"))
    if luck.random() < 0.1:
        notes["test.laxity/stop-for"] = "0.5s"
    if luck.random() < 0.1:
        pod["containers"].append({"name": "logs", "image": "none", **_resources(luck, 0.3)})
    if luck.random() < 0.1:
        first = {"name": "fetch", "image": "none", **_resources(luck, 0.2)}
        maybe(first, "restartPolicy", 0.5, "Always")
        pod["initContainers"] = [first]
    _placement(luck, pod, name)
    _habits(luck, pod)
    return {"metadata": {"annotations": notes, "labels": {"app": name}}, "spec": pod}


def _container(luck: random.Random) -> Json:
    made: Json = {"name": "train", "image": "registry.example/train:1", **_resources(luck, 0.9)}
    maybe = _maybe(luck)
    maybe(made, "command", 0.5, ["python", "train.py"], ["sleep", "1"])
    maybe(
        made, "env", 0.3,
        [{"name": "SEED", "value": "1"}],
        [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        [{"name": "LAXITY_EPOCHS", "value": "7"}],
    )  # fmt: skip
    maybe(made, "securityContext", 0.1, {"runAsNonRoot": True}, {"privileged": True})
    maybe(made, "imagePullPolicy", 0.2, "Always", "Never")
    return made


def _resources(luck: random.Random, with_gpus: float) -> Json:
    limits = {"memory": "64Mi"} if luck.random() < 0.3 else {}
    requests = {"cpu": luck.choice(("10m", "1"))} if luck.random() < 0.3 else {}
    if luck.random() < with_gpus:
        kind = luck.choices(
            ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb"), (0.94, 0.03, 0.03)
        )[0]
        limits[kind] = luck.choices(("1", "2", "4", "8", "0"), (0.7, 0.15, 0.06, 0.04, 0.05))[0]
    found = {"limits": limits, "requests": requests}
    return {"resources": {kind: table for kind, table in found.items() if table}}


def _placement(luck: random.Random, pod: Json, name: str) -> None:
    maybe = _maybe(luck)
    here = {"key": "type", "operator": "In", "values": ["kwok"]}
    last = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-3"]}
    nowhere = {"key": "zone", "operator": "Exists"}
    maybe(
        pod, "nodeSelector", 0.12,
        {"type": "kwok"}, {"kubernetes.io/hostname": "gpu-1"}, {"zone": "nowhere"},
    )  # fmt: skip
    required, preferred = (
        f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred")
    )
    mine = {
        "labelSelector": {"matchLabels": {"app": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    maybe(
        pod, "affinity", 0.15,
        {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}},
        {"nodeAffinity": {required: {"nodeSelectorTerms": [
            {"matchExpressions": [last]}, {"matchExpressions": [nowhere]}]}}},
        {"nodeAffinity": {preferred: [{"weight": 5, "preference": {"matchExpressions": [last]}}]}},
        {"podAntiAffinity": {required: [mine]}},
        {"podAffinity": {preferred: [{"weight": 1, "podAffinityTerm": mine}]}},
    )  # fmt: skip
    spread = {**mine, "maxSkew": 1}
    maybe(
        pod, "topologySpreadConstraints", 0.05,
        [{**spread, "whenUnsatisfiable": "DoNotSchedule"}],
        [{**spread, "whenUnsatisfiable": "ScheduleAnyway"}],
    )  # fmt: skip
    maybe(
        pod, "tolerations", 0.1,
        [{"operator": "Exists"}], [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    )  # fmt: skip


def _habits(luck: random.Random, pod: Json) -> None:
    maybe = _maybe(luck)
    maybe(pod, "restartPolicy", 0.1, "OnFailure")
    maybe(pod, "priorityClassName", 0.08, URGENT)
    maybe(pod, "hostNetwork", 0.05, True)
    maybe(pod, "schedulerName", 0.02, "nobody")
    maybe(pod, "schedulingGates", 0.02, [{"name": "example.com/gate"}])
    maybe(pod, "terminationGracePeriodSeconds", 0.2, 0, 30, 600)
    maybe(pod, "activeDeadlineSeconds", 0.03, 3600)
    maybe(pod, "enableServiceLinks", 0.05, False)
    maybe(pod, "automountServiceAccountToken", 0.05, False)
    maybe(pod, "securityContext", 0.1, {"runAsUser": 1000}, {"fsGroup": 2000})
    maybe(pod, "dnsPolicy", 0.05, "Default")
    maybe(
        pod, "volumes", 0.2,
        [{"name": "scratch", "emptyDir": {}}],
        [{"name": "data", "hostPath": {"path": "/data"}}],
        [{"name": "settings", "configMap": {"name": "settings", "optional": True}}],
    )  # fmt: skip
