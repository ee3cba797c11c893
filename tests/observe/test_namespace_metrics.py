"""Metrics by namespace: what each was promised and holds, in a bounded number of series."""

import re
from typing import Any

from laxity_scheduler.service.exported.metrics import Metrics
from laxity_scheduler.service.exported.namespace_metrics import MAX_NAMESPACES
from laxity_scheduler.service.views.view_cache import ViewChange
from tests.support.builders import cluster, job

VIEW: dict[str, Any] = {
    "class": "hard", "verdict": "promised", "reason_code": "", "broken": False, "outcome": "",
    "verdict_code": "fits", "width_history": [], "submitted_at": 0.0, "state": "running", "finished_at": None,
}  # fmt: skip


def view(job_id: str, **changes: Any) -> dict[str, Any]:
    return {**VIEW, "id": job_id, **changes}


def series(text: bytes) -> dict[str, float]:
    lines = re.findall(r"^(laxity_namespace_\w+\{.*\}) (\S+)$", text.decode(), re.MULTILINE)
    return {name: float(value) for name, value in lines if "_created" not in name}


def test_promises_given_kept_and_broken_are_counted_by_namespace() -> None:
    metrics = Metrics()
    given, kept = view("a/x"), view("a/x", outcome="kept", state="finished", finished_at=1.0)
    late = view("b/y", broken=True)
    metrics.count_changes(
        [ViewChange(None, given), ViewChange(given, kept), ViewChange(None, late)]
    )
    event = 'laxity_namespace_promises_total{{event="{}",job_namespace="{}"}}'.format
    assert series(metrics.exposition()) == {
        event("given", "a"): 1.0,
        event("kept", "a"): 1.0,
        event("given", "b"): 1.0,
        event("broken", "b"): 1.0,
    }


def test_gpus_are_those_of_running_jobs() -> None:
    metrics = Metrics()
    training = job("a/x", workers=(2,), running=2, gpus_per_worker=2)
    metrics.set_gauges(cluster(jobs=[training, job("a/y"), job("b/z")]), [])
    held = 'laxity_namespace_gpus{job_namespace="%s"}'
    assert series(metrics.exposition()) == {held % "a": 4.0, held % "b": 0.0}


def test_more_than_a_hundred_namespaces_make_no_more_series() -> None:
    metrics = Metrics()
    views = [view(f"n{number}/x", state="queued") for number in range(3 * MAX_NAMESPACES)]
    metrics.set_gauges(cluster(), views)
    waiting = series(metrics.exposition())
    assert len(waiting) == MAX_NAMESPACES + 1
    assert waiting['laxity_namespace_jobs{job_namespace="other",state="waiting"}'] == 200.0


def test_a_token_of_one_namespace_reads_no_figures_of_others() -> None:
    metrics = Metrics()
    metrics.count_changes([ViewChange(None, view("a/x")), ViewChange(None, view("b/y"))])
    text = metrics.exposition(frozenset({"a"}))
    assert b'job_namespace="a"' in text
    assert b'job_namespace="b"' not in text
    assert b"laxity_promises_total 2.0" in text
