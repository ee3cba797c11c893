"""Jobs of every shape that an API server accepts end as they were written, or are refused in words."""

import pytest

from tests.support.kubernetes.place import HARD, Place
from tests.support.kubernetes.service import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

ANY_WIDTH = {key: text for key, text in HARD.items() if key != "widths"}
PLAIN = {"deadline": "20m", "epoch-estimate": "10s"}
ONE_OF_TWO = {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]}


def shaped(there: Place, name: str, asked: dict[str, str], **spec: object) -> Json:
    job = there.job(name, asked, run_s=1.0)
    job["spec"] |= {"parallelism": 2, "completions": 2, **spec}
    job["spec"] = {key: value for key, value in job["spec"].items() if value is not None}
    return job


def is_complete(job: Json) -> bool:
    return any(
        one["type"] == "Complete" and one["status"] == "True"
        for one in job["status"].get("conditions", [])
    )


def test_every_item_of_every_shape_is_done(there: Place) -> None:
    limits = {"backoffLimitPerIndex": 1, "maxFailedIndexes": 1, "backoffLimit": None}
    written: dict[str, tuple[dict[str, str], Json, int]] = {
        "fan-out-unlabelled": ({}, {"completions": 6}, 6),
        "fan-out-deadline": (PLAIN, {"completions": 6}, 6),
        "fan-out-epochs": (ANY_WIDTH, {"completions": 5}, 5),
        "unordered": (PLAIN, {"completionMode": "NonIndexed", "completions": 5}, 5),
        "queue": (PLAIN, {"completionMode": "NonIndexed", "completions": None}, 2),
        "per-index": (ANY_WIDTH, limits, 2),
        "elastic": (ANY_WIDTH, {}, 2),
        "first-of-two": (ANY_WIDTH, {"successPolicy": ONE_OF_TWO}, 1),
    }
    there.apply(*[shaped(there, name, asked, **spec) for name, (asked, spec, _) in written.items()])
    for name, (_, spec, items) in written.items():
        ended = there.until_job(name, is_complete, "is complete")
        assert ended["status"]["succeeded"] >= items, name
        assert ended["spec"]["parallelism"] == 2, name
        assert ended["spec"].get("completions") == spec.get("completions", 2), name
