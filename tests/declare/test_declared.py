"""What Jobs declare is read once, and again as soon as anything of it is another."""

import copy
import gc
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from cachetools import LRUCache

from benchmarks.bench_cluster import waiting_job
from laxity import names
from laxity.job.qos import QoSError
from laxity.job.spec import TrainingSpec
from laxity_k8s.objects import spec_cache
from laxity_k8s.objects.spec_cache import read_spec, size_of

Json = dict[str, Any]


def job() -> Json:
    return waiting_job("team", "train")


def slim(manifest: Json) -> TrainingSpec:
    """What is kept of it: all but what only its workers need."""
    return replace(TrainingSpec.from_manifest(manifest), parameters={}, env={})


def test_the_same_words_are_read_once() -> None:
    first = read_spec(job())
    later = job()
    later["metadata"] |= {"resourceVersion": "77", "generation": 4, "uid": "u"}
    later["metadata"]["annotations"] |= {names.VERDICT: "{}", names.STATUS: "{}"}
    later["status"] = {"active": 1}
    later["spec"]["suspend"] = False
    assert read_spec(later) is first
    assert first == slim(later)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "name"), "other"),
        (("metadata", "namespace"), "other"),
        (("metadata", "annotations", names.DEADLINE), "13h"),
        (("metadata", "annotations", names.EPOCHS), "11"),
        (("metadata", "annotations", names.MODEL), "another"),
        (("metadata", "annotations", names.WIDTHS), "1,2"),
        (("metadata", "annotations", names.SUBMITTED_AT), "2026-11-21T18:00:00Z"),
        (("spec", "template", "spec", "containers", 0, "image"), "train:2"),
        (("spec", "template", "spec", "containers", 0, "env"), [{"name": "A", "value": "b"}]),
        (("spec", "template", "spec", "containers", 0, "resources", "limits"), {}),
    ],
)
def test_another_word_is_read_anew(path: tuple[str | int, ...], value: object) -> None:
    changed = job()
    changed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {
        "nvidia.com/gpu": "2"
    }
    read_spec(changed)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert read_spec(changed) == slim(changed)


def test_a_job_of_kueue_or_of_nobody_is_wrong_however_often_it_is_asked() -> None:
    read_spec(job())
    for label in ({}, {names.MANAGED: "true", names.KUEUE_QUEUE: "theirs"}):
        other = job()
        other["metadata"]["labels"] = label
        for _again in range(2):
            with pytest.raises(QoSError):
                read_spec(other)


def test_a_job_that_names_no_width_follows_its_own() -> None:
    plain = job()
    plain["spec"] |= {"completionMode": "NonIndexed", "parallelism": 3}
    del plain["metadata"]["annotations"][names.WIDTHS]
    assert read_spec(plain).qos.widths == (3,)
    wider = copy.deepcopy(plain)
    wider["spec"]["parallelism"] = 4
    assert read_spec(wider).qos.widths == (4,)


@pytest.mark.parametrize("value", [{1: 2}, {"a": 2**80}, {"a": "\udc80"}, object()])
def test_what_is_no_json_of_an_api_server_is_read_without_being_kept(value: object) -> None:
    odd = job()
    odd["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = value
    assert read_spec(odd) == slim(odd)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="as they are"),
        pytest.param({names.WIDTHS: "1..4096"}, id="all widths"),
        pytest.param({names.ENTRY: "m:" + "f" * 1_000}, id="a long entry"),
        pytest.param({names.PARAMETERS: '{"a":[' + "[]," * 20_000 + "[]]}"}, id="parameters"),
    ],
)
def test_what_is_kept_of_a_job_takes_no_more_than_is_counted(
    said: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A table that earlier tests have filled may grow here by more than the 19 Jobs take.
    empty = LRUCache[bytes, TrainingSpec](spec_cache.MOST_BYTES, getsizeof=size_of)
    monkeypatch.setattr(spec_cache, "_SPECS", empty)

    def another(number: int) -> TrainingSpec:
        made = job()
        made["metadata"]["name"] = f"train-{number}"
        made["metadata"]["annotations"] |= {**said, names.DEADLINE: f"{number + 1000}s"}
        return read_spec(made)

    kept = [another(0)]
    gc.collect()
    tracemalloc.start()
    kept += [another(number) for number in range(1, 20)]
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / 19 <= 1.3 * size_of(kept[-1])
