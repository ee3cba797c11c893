"""Jobs that nobody should write, by the thousand, and honest ones that have to live beside them."""

import copy
import json
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

from laxity import json_tree, names
from laxity.job.accelerators import GPU
from laxity_k8s.cluster_api import ApiError, ClusterApi, Json
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects.conditions import is_finished, read_condition
from laxity_k8s.objects.pods import COMPLETION_INDEX
from laxity_k8s.objects.status_annotation import FIELDS
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies import qos
from tests.support.builders import Curve
from tests.support.manifests import indexed_job

PATIENCE_S: Final = 120.0
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NUMBERS: Final = (
    "²", "\u0663", "9" * 5000, "-1", "1e9", "NaN", "", " 4", "0x10", "1_0", "1.5", "inf",
    str(2**64), "99999999999", "007", "0",
)  # fmt: skip
INSTANTS: Final = (
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-11-21T08:00:00", "soon", "-5m", "5",
    "10000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "3652d", "0.000001s", "9" * 40 + "d",
)  # fmt: skip
JSONS: Final = (
    "{", "[" * 900 + "]" * 900, "null", "NaN", "[1e999]", '{"at": NaN, "for": [1]}', '"²"', "{}",
    "[]", '{"kind": "promise"}', '{"kind": "refusal", "reason": {"code": [], "facts": 5}}',
    "[{}, [], null, 5]", "\u0000", "x" * 100_000,
)  # fmt: skip
NONSENSE: Final = (*NUMBERS, *INSTANTS, *JSONS, "hard", "soft", "true", "a/b", "1,2", "1..4")
VALUES: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 3, 2**53, 2**80, 1e300, -1e300, float("nan"), float("inf"), "", "²", [], {},
    [None], ["a", 1], {"a": []},
)  # fmt: skip
VERDICTS: Final[tuple[Json, ...]] = (
    {
        "kind": "promise", "deadline_at": 2e9, "p50_at": 1.9e9, "p90_at": 1.95e9,
        "runs": [[1.95e9, 1]], "rests_on": ["default/other"],
        "reason": {"code": "order", "facts": [["policy", "x"]]},
    },
    {
        "kind": "refusal", "reason": {"code": "invalid", "facts": [["problem", "x"]]},
        "p90_at": "inf", "offers": [{
            "kind": "deadline", "deadline_at": 2e9, "widths": [1], "p90_at": 2e9,
            "checked_at": 1.8e9, "gpus_borrowed": 0,
        }],
    },
    {
        "kind": "forecast", "p50_at": 1.9e9, "p90_at": 2e9, "late_by_s": 0.0,
        "reason": {"code": "order", "facts": []},
    },
)  # fmt: skip
OURS: Final = tuple(
    sorted(
        value
        for value in vars(names).values()
        if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/")
    )
)


def honest(name: str, namespace: str, template: Json) -> Json:
    """A Job of two epochs of a second each, due in an hour."""
    said = {"epochs": "2", "epoch_estimate": "1s", "deadline": "1h", "widths": "1"}
    return indexed_job(name, copy.deepcopy(template), said, namespace=namespace)


def poisoned(random: Random, name: str, namespace: str, template: Json) -> Json:
    """An honest best-effort Job with one to three things wrong, which may come to nothing."""
    job = honest(name, namespace, template)
    del job["metadata"]["annotations"][names.DEADLINE]
    if random.random() < 0.9:  # most may run nowhere, so that there are not as many workers
        job["spec"]["template"]["spec"]["nodeSelector"] = {"test/no-node": "has-this"}
    for poison in random.sample(POISONS, random.randint(1, 3)):
        poison(job, random)
    return job


def _annotation(job: Json, random: Random) -> None:
    job["metadata"]["annotations"][random.choice(OURS)] = random.choice(NONSENSE)


def _outputs(job: Json, random: Random) -> None:
    for name in random.sample(names.OUTPUTS, 4):
        job["metadata"]["annotations"][name] = random.choice(NONSENSE)


def _state(job: Json, random: Random) -> None:
    fields = {name: random.choice(VALUES) for name in random.sample(FIELDS, 5)}
    job["metadata"]["annotations"][names.STATUS] = json.dumps(fields)


def _verdict(job: Json, random: Random) -> None:
    verdict = copy.deepcopy(random.choice(VERDICTS))
    where: Any = verdict
    while isinstance(where, dict | list) and where:
        key = random.choice(list(where) if isinstance(where, dict) else range(len(where)))
        if not isinstance(where[key], dict | list) or not where[key] or random.random() < 0.3:
            where[key] = random.choice(VALUES)
            break
        where = where[key]
    job["metadata"]["annotations"][names.VERDICT] = json.dumps(verdict)


def _index(job: Json, random: Random) -> None:
    """C4 of the reports: an index that is a digit and no number."""
    job["spec"]["completionMode"] = "NonIndexed"
    notes = job["spec"]["template"].setdefault("metadata", {}).setdefault("annotations", {})
    notes[COMPLETION_INDEX] = random.choice(NUMBERS)


def _gpus(job: Json, random: Random) -> None:
    containers = job["spec"]["template"]["spec"]["containers"]
    if random.random() < 0.5:
        containers.append({**copy.deepcopy(containers[0]), "name": "second"})
    limits: Json = {GPU: random.choice((*NUMBERS, 1.5, True, [], "4Gi", "1k", 10**9))}
    containers[-1]["resources"] = {"limits": limits}


def _length(job: Json, random: Random) -> None:
    """C3 of the reports: a finish beyond the calendar."""
    job["metadata"]["annotations"] |= {
        names.EPOCHS: random.choice(("1000000", "999999", "2600")),
        names.EPOCH_ESTIMATE: random.choice(("4d", "3652d", "14d")),
        names.WIDTHS: random.choice(("1", "4096", "1..64")),
    }


def _affinity(job: Json, random: Random) -> None:
    bad = random.choice(([1], "x", {"key": 1}, [None], [{"key": "metadata.name", "values": 5}]))
    node = random.choice(
        (
            {PREFERRED: [{"weight": 1, "preference": {"matchFields": bad}}]},
            {PREFERRED: [{"weight": "²", "preference": bad}]},
            {REQUIRED: {"nodeSelectorTerms": [{"matchFields": bad}]}},
            {REQUIRED: {"nodeSelectorTerms": bad}},
            {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": bad}]}},
        )
    )
    job["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": node}


def _selector(job: Json, random: Random) -> None:
    key = random.choice(("test/none", "type", "²"))
    expression = {"key": key, "operator": random.choice(("Gt", "In")), "values": ["²"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    job["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: terms}}


def _spec(job: Json, random: Random) -> None:
    field = random.choice(
        ("parallelism", "completions", "completionMode", "backoffLimit", "activeDeadlineSeconds")
    )
    job["spec"][field] = random.choice(("²", -1, 0, 3, 100_000, 2**31 - 1, None, [], "Indexed"))


def _depth(job: Json, random: Random) -> None:
    inner: Any = 1
    for _ in range(random.choice((50, 240, 900))):
        inner = [inner]
    job["spec"]["template"]["spec"]["volumes"] = inner


def _labels(job: Json, random: Random) -> None:
    job["metadata"]["labels"] |= {
        names.VERDICT_LABEL: random.choice(("promised", "²", "")),
        names.CLASS_LABEL: random.choice(("hard", "5", "")),
    }


POISONS: Final[Sequence[Callable[[Json, Random], None]]] = (
    _annotation, _outputs, _state, _verdict, _index, _gpus, _length, _affinity, _selector, _spec,
    _depth, _labels,
)  # fmt: skip


class Course:
    """Cycles over a world, one after the other, and when each Job was seen and started in them."""

    def __init__(self, world: LiveCluster) -> None:
        self.world, self.cycles = world, 0
        self.seen: dict[str, int] = {}
        self.started: dict[str, int] = {}

    def cycle(self) -> ClusterState:
        """Observe, decide, check and carry out, then wait for news."""
        self.cycles += 1
        self.world.cycle = self.cycles
        state = self.world.observe()
        for job in self.world.jobs():
            self.seen.setdefault(json_tree.object_id(job), self.cycles)
            if json_tree.get_in(job, "spec", "suspend") is False:  # it may have ended meanwhile
                self.started.setdefault(json_tree.object_id(job), self.cycles)
        plan = with_follow_ups(qos.decide)(state, Curve(epoch_s=1.0))
        check_plan(plan, state)
        self.world.carry_out(plan)
        self.world.wait(0.2)
        return state

    def until(self, is_so: Callable[[], bool], words: str) -> None:
        end_at = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end_at, f"not within {PATIENCE_S:.0f} s: {words}"
            self.cycle()

    def delays(self, jobs: Sequence[str]) -> list[int]:
        """Cycles from when each was seen to when it ran."""
        self.until(lambda: all(job in self.started for job in jobs), "all honest jobs to start")
        return [self.started[job] - self.seen[job] for job in jobs]

    def done(self, job_id: str) -> bool:
        return read_condition(self.world.job(job_id), "Complete") == "True"

    def untold(self) -> list[str]:
        """Jobs without a verdict that have not ended."""
        return [
            json_tree.object_id(job)
            for job in self.world.jobs()
            if names.VERDICT not in json_tree.annotations_of(job) and not is_finished(job)
        ]


def create(api: ClusterApi, jobs: Sequence[Json]) -> list[str]:
    """Those that the API server takes, by id."""
    return list(_created(api, jobs))


def _created(api: ClusterApi, jobs: Sequence[Json]) -> Iterator[str]:
    for job in jobs:
        try:
            yield json_tree.object_id(api.create("jobs", job))
        except ApiError as error:
            if error.status not in {400, 413, 422}:
                raise


def delay_nobody(world: LiveCluster, namespace: str, template: Json, *, many: int = 1000) -> None:
    """So many poisoned Jobs delay none of ten honest ones by more than two cycles.

    All get a verdict meanwhile; when they are gone, another honest Job is served as the first.
    """
    random, course = Random(7), Course(world)

    def ten(name: str) -> list[str]:
        return create(world.api, [honest(f"{name}-{n}", namespace, template) for n in range(10)])

    first = ten("first")
    alone = max(course.delays(first))
    jobs = [poisoned(random, f"poison-{n}", namespace, template) for n in range(many)]
    taken = create(world.api, jobs[: many // 2])
    beside = ten("beside")
    taken += create(world.api, jobs[many // 2 :])
    assert len(taken) > many // 4, "that many are taken in"
    assert max(course.delays(beside)) <= alone + 2
    course.until(lambda: not course.untold(), "every job to have a verdict")
    course.until(lambda: all(map(course.done, first + beside)), "honest jobs to end")
    for job in taken:
        world.cancel(job)
    late = ten("late")
    assert max(course.delays(late)) <= alone + 2
    course.until(lambda: all(map(course.done, late)), "the last jobs to end")
