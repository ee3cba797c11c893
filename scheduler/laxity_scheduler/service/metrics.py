"""What Prometheus reads: jobs, promises, cycles, and how well the P90 holds.

Names and labels follow what operators of queueing systems know. The registry is the service's own,
so that two services in one process (a test) do not share their counts.
"""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from laxity.qos import ServiceClass
from laxity_scheduler.service.board import News
from laxity_scheduler.service.faults import Faults
from laxity_scheduler.state import ClusterState

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
WAITS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
CLASSES = get_args(ServiceClass)
RATIOS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 4.0)


class Metrics:
    """The service's counts."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self._sent: dict[str, int] = {}
        self.jobs = Gauge("laxity_jobs", "Jobs by state", ("state", "class"), registry=own)
        self.gpus = Gauge("laxity_gpus", "GPUs of the cluster", ("state",), registry=own)
        self.verdicts = Counter(
            "laxity_verdicts", "Verdicts given", ("verdict", "reason"), registry=own
        )
        self.promises = Counter("laxity_promises", "Jobs that were promised", registry=own)
        self.broken = Counter("laxity_promises_broken", "Promises broken", registry=own)
        self.outcomes = Counter("laxity_outcomes", "Jobs ended", ("outcome",), registry=own)
        self.cycle = Histogram(
            "laxity_cycle_seconds", "Observe, decide, journal, act", buckets=SECONDS, registry=own
        )
        self.decision = Histogram(
            "laxity_decision_seconds", "Decide and check", buckets=SECONDS, registry=own
        )
        self.admission_wait = Histogram(
            "laxity_admission_wait_seconds",
            "From submission to the first start",
            ("class",),
            buckets=WAITS,
            registry=own,
        )
        self.failed_cycles = Counter(
            "laxity_cycles_failed", "Cycles that acted on nothing", ("cause",), registry=own
        )
        self.failed_in_a_row = Gauge(
            "laxity_consecutive_failed_cycles",
            "Cycles that failed since the last that went well; from 3 on /readyz says so",
            registry=own,
        )
        self.job_errors = Counter(
            "laxity_job_errors",
            "Errors about one job that were set aside while all others were served",
            ("stage",),
            registry=own,
        )
        self.faults = Faults(lambda stage: self.job_errors.labels(stage).inc())
        self.patches = Counter(
            "laxity_patches",
            "Patches sent to the cluster; result is done or the status",
            ("result",),
            registry=own,
        )
        self.finish_ratio = Histogram(
            "laxity_finish_ratio",
            "Finished jobs: seconds from submission, as a share of the P50 that was first predicted",
            buckets=RATIOS,
            registry=own,
        )
        self.leading = Gauge(
            "laxity_leading", "1 if this replica is the one that acts", registry=own
        )
        self.blind = Gauge(
            "laxity_blind",
            "1 while nothing is decided, as the cluster cannot be followed",
            registry=own,
        )
        self.reports = Counter("laxity_reports", "Lines reported by workers", registry=own)
        self.untold = Gauge("laxity_announcements_waiting", "News not yet told", registry=own)
        self.coverage = Gauge(
            "laxity_p90_coverage",
            "Share of finished jobs that ended by the P90 of their first verdict",
            registry=own,
        )

    def count(self, news: Iterable[News]) -> None:
        """What changed since the last cycle."""
        for change in news:
            try:
                self._count(change)
            except Exception as error:  # noqa: BLE001 - noted with its traceback
                self.faults.note("metrics", change.after["id"], error)

    def _count(self, change: News) -> None:
        before, after = change.before or {}, change.after
        self._verdict(before, after)
        if after["broken"] and not before.get("broken"):
            self.broken.inc()
        if after["outcome"] and after["outcome"] != before.get("outcome"):
            self.outcomes.labels(after["outcome"]).inc()
            self._finished(after)
        if after["width_history"] and not before.get("width_history"):
            waited = after["width_history"][0][0] - (after["submitted_at"] or 0.0)
            self.admission_wait.labels(_class(after)).observe(max(0.0, waited))

    def _verdict(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        if after["verdict"] in ("none", before.get("verdict")):
            return
        self.verdicts.labels(after["verdict"], after["reason_code"]).inc()
        if after["verdict"] == "promised":
            self.promises.inc()

    def _finished(self, view: Mapping[str, Any]) -> None:
        began, p50_at = view["submitted_at"], view.get("first_p50_at")
        if view["state"] == "finished" and began is not None and p50_at is not None:
            took_s, predicted_s = view["finished_at"] - began, p50_at - began
            if predicted_s > 0:
                self.finish_ratio.observe(took_s / predicted_s)

    def sent(self, patches: Mapping[str, int]) -> None:
        """How many patches went to the cluster so far, by what became of them."""
        for result, many in patches.items():
            counter = self.patches.labels(result)
            counter.inc(many - self._sent.get(result, 0))
            self._sent[result] = many

    def look(self, state: ClusterState, views: Iterable[Mapping[str, Any]]) -> None:
        """What is so now."""
        self.gpus.labels("total").set(state.total_gpus)
        self.gpus.labels("free").set(state.free_gpus)
        jobs: Counts[tuple[str, str]] = Counts()
        held = known = 0
        for view in views:
            jobs[view["state"], _class(view)] += 1
            if view["state"] == "finished" and view.get("first_p90_at") is not None:
                known += 1
                held += view["finished_at"] <= view["first_p90_at"]
        self.jobs.clear()
        for labels, many in jobs.items():
            self.jobs.labels(*labels).set(many)
        self.coverage.set(held / known if known else float("nan"))

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _class(view: Mapping[str, Any]) -> str:
    """The class as a label; whatever else stands on a Job that could not be read is "other"."""
    known = view["class"]
    return known if known in CLASSES else "other"
