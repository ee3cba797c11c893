"""What Prometheus reads of each namespace: its promises, its jobs that wait or run, its GPUs.

The label is `job_namespace`: a scrape by the Prometheus operator sets `namespace` to the service's
own. The first 100 namespaces have series by their names, all others together are "other".
"""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from laxity_scheduler.model.cluster import ClusterState

LABEL: Final = "job_namespace"
MAX_NAMESPACES: Final = 100
OTHER: Final = "other"
STATE_LABELS: Final = {
    "queued": "waiting",
    "suspended": "waiting",
    "running": "running",
    "stopping": "running",
}


class NamespaceMetrics:
    """Counts by namespace, in a registry of their own: not everybody may read them."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self._names: set[str] = set()
        self._promises = Counter(
            "laxity_namespace_promises",
            "Promises by namespace: given, kept or broken",
            (LABEL, "event"),
            registry=own,
        )
        self._jobs = Gauge(
            "laxity_namespace_jobs",
            "Jobs that wait or run, by namespace",
            (LABEL, "state"),
            registry=own,
        )
        self._gpus = Gauge(
            "laxity_namespace_gpus", "GPUs of running jobs, by namespace", (LABEL,), registry=own
        )

    def count_event(self, view: Mapping[str, Any], event: str) -> None:
        """A promise of this job was given, kept or broken."""
        self._promises.labels(self._namespace_label(view["id"]), event).inc()

    def set_gauges(self, state: ClusterState, views: Iterable[Mapping[str, Any]]) -> None:
        """Set the gauges to the present state."""
        jobs = Counts(
            (self._namespace_label(view["id"]), STATE_LABELS[view["state"]])
            for view in views
            if view["state"] in STATE_LABELS
        )
        gpus: Counts[str] = Counts()
        for job in state.jobs:
            gpus[self._namespace_label(job.id)] += job.gpus
        self._jobs.clear()
        self._gpus.clear()
        for labels, number in jobs.items():
            self._jobs.labels(*labels).set(number)
        for name, number in gpus.items():
            self._gpus.labels(name).set(number)

    def exposition(self, namespaces: frozenset[str] | None) -> bytes:
        """The exposition; of these namespaces only, unless None."""
        text = generate_latest(self._registry)
        if namespaces is None:
            return text
        wanted_labels = [f'{LABEL}="{name}"'.encode() for name in namespaces]
        lines = text.splitlines(keepends=True)
        return b"".join(
            line
            for line in lines
            if line.startswith(b"#") or any(label in line for label in wanted_labels)
        )

    def _namespace_label(self, job_id: str) -> str:
        """The namespace of this job as a label."""
        name = job_id.partition("/")[0]
        if name not in self._names:
            if len(self._names) >= MAX_NAMESPACES:
                return OTHER
            self._names.add(name)
        return name
