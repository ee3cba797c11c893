"""Metrics by namespace: what each was promised and holds, in a bounded number of series."""

import re
from typing import Any

from laxity_scheduler.service.metrics import Metrics
from laxity_scheduler.service.namespace_metrics import MOST_NAMESPACES
from laxity_scheduler.service.view_cache import News
from tests.builders import cluster, job

VIEW: dict[str, Any] = {
    "class": "hard", "verdict": "promised", "reason_code": "", "broken": False, "outcome": "",
    "width_history": [], "submitted_at": 0.0, "state": "running", "finished_at": None,
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
    metrics.count([News(None, given), News(given, kept), News(None, late)])
    event = 'laxity_namespace_promises_total{{event="{}",job_namespace="{}"}}'.format
    assert series(metrics.text()) == {
        event("given", "a"): 1.0,
        event("kept", "a"): 1.0,
        event("given", "b"): 1.0,
        event("broken", "b"): 1.0,
    }


def test_gpus_are_those_of_running_jobs() -> None:
    metrics = Metrics()
    training = job("a/x", workers=(2,), running=2, gpus_per_worker=2)
    metrics.look(cluster(jobs=[training, job("a/y"), job("b/z")]), [])
    held = 'laxity_namespace_gpus{job_namespace="%s"}'
    assert series(metrics.text()) == {held % "a": 4.0, held % "b": 0.0}


def test_more_than_a_hundred_namespaces_make_no_more_series() -> None:
    metrics = Metrics()
    views = [view(f"n{number}/x", state="queued") for number in range(3 * MOST_NAMESPACES)]
    metrics.look(cluster(), views)
    waiting = series(metrics.text())
    assert len(waiting) == MOST_NAMESPACES + 1
    assert waiting['laxity_namespace_jobs{job_namespace="other",state="waiting"}'] == 200.0


def test_a_token_of_one_namespace_reads_no_figures_of_others() -> None:
    metrics = Metrics()
    metrics.count([News(None, view("a/x")), News(None, view("b/y"))])
    text = metrics.text(frozenset({"a"}))
    assert b'job_namespace="a"' in text
    assert b'job_namespace="b"' not in text
    assert b"laxity_promises_total 2.0" in text
