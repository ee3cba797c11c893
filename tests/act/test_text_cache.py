"""What is kept of texts that anybody may write on a Job takes a bounded number of bytes."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from laxity import names
from laxity_k8s.objects.status_annotation import (
    JobStatusRecord,
    _parse_verdict,
    read_status,
    read_status_text,
    read_verdict,
    verdict_text,
)
from laxity_k8s.objects.text_cache import TextCache, size_of
from laxity_scheduler.model.job import Promise
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import job

WHY = reason("fits", p90_at=60.0, slack_s=5.0, workers=2)
MOST_BYTES = 1024 * 1024


def promise(number: int, *, runs: int = 1, rests_on: int = 0) -> str:
    widths = tuple((number + step / 2, step) for step in range(runs))
    sources = tuple(f"{number}{source}" for source in range(rests_on))
    return verdict_text(Promise(9.5 + number, 1.5, 2.5, widths, WHY, sources))


def status(number: int) -> str:
    return JobStatusRecord(
        queued_at=float(number), freed_nodes=tuple(map(str, range(number, 2_000)))
    ).to_text()


@pytest.mark.parametrize(
    ("made", "read"),
    [
        pytest.param(promise, _parse_verdict, id="promises"),
        pytest.param(lambda n: promise(n, runs=2_000), _parse_verdict, id="many widths"),
        pytest.param(lambda n: promise(n, rests_on=3_000), _parse_verdict, id="many sources"),
        pytest.param(status, read_status_text, id="many nodes"),
        pytest.param(lambda n: "💥" * (9_000 + n), read_status_text, id="wide characters"),
    ],
)
def test_texts_and_what_is_read_of_them_take_no_more_than_their_bound(
    made: Callable[[int], str], read: Callable[[str], object]
) -> None:
    cache = TextCache(read, MOST_BYTES)
    gc.collect()
    tracemalloc.start()
    for number in range(max(9, 2 * MOST_BYTES // size_of(made(0)))):
        cache(made(number))
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= 1.05 * MOST_BYTES


def test_a_text_is_read_once_while_it_is_kept_and_those_used_last_are_kept() -> None:
    asked: list[str] = []

    def read(text: str) -> int:
        asked.append(text)
        return len(text)

    cache = TextCache(read, 2 * size_of("a") + 1)
    assert [cache(text) for text in ("a", "b", "a", "c", "a", "b")] == [1] * 6
    assert asked == ["a", "b", "c", "b"]
    assert cache("x" * 10_000) == 10_000, "too large to be kept, and read all the same"


def test_a_large_annotation_is_read_as_a_small_one() -> None:
    made: dict[str, Any] = job(verdict=promise(1, runs=9_000))
    made["metadata"]["annotations"][names.STATUS] = status(1)
    found = read_verdict(made)
    assert isinstance(found, Promise)
    assert len(found.runs) == 9_000
    assert len(read_status(made).freed_nodes) == 1_999
