"""The metrics that Prometheus reads: jobs, promises, cycles, and how well the P90 holds.

Names and labels follow what operators of queueing systems know. The registry is the service's own,
so that two services in one process (a test) do not share their counts.
"""

import logging
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from laxity.job.qos import ServiceClass
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.service.exported.loan_metrics import LoanMetrics
from laxity_scheduler.service.exported.namespace_metrics import NamespaceMetrics
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.views.view_cache import ViewChange

LOG = logging.getLogger(__name__)
CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
WAITS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
CLASSES = get_args(ServiceClass)
RATIOS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 4.0)


class RewardMetrics:
    """What a learned policy and its teacher reach; all 0 where no policy was learned."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reward = Gauge(
            "laxity_policy_reward",
            "Shares of trainings done in the last 20 slots: measured, and what the teacher would have done",
            ("of",),
            registry=registry,
        )
        self._fallback = Gauge(
            "laxity_policy_fallback",
            "1 while the teacher decides in place of a learned policy",
            registry=registry,
        )

    def record(self, policies: PolicyInForce) -> None:
        self._reward.labels("policy").set(policies.comparison.measured)
        self._reward.labels("teacher").set(policies.comparison.teacher)
        self._fallback.set(bool(policies.fallback))


class FinishMetrics:
    """How the finishes that jobs were first told came out."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ratio = Histogram(
            "laxity_finish_ratio",
            "Finished jobs: seconds from submission, as a share of the P50 that was first predicted",
            buckets=RATIOS,
            registry=registry,
        )
        self._coverage = Gauge(
            "laxity_p90_coverage",
            "Share of finished jobs that ended by the P90 finish that they were first told",
            registry=registry,
        )
        self._error = Gauge(
            "laxity_finish_error",
            "Finished jobs: how far the P50 finish first told was off, of the time from submission",
            registry=registry,
        )

    def observe(self, view: Mapping[str, Any]) -> None:
        """A job has ended."""
        began, p50_at = view["submitted_at"], view.get("first_p50_at")
        if _is_predicted(view) and began is not None and p50_at is not None:
            took_s, predicted_s = view["finished_at"] - began, p50_at - began
            if predicted_s > 0:
                self._ratio.observe(took_s / predicted_s)

    def set_gauges(self, views: Iterable[Mapping[str, Any]]) -> None:
        """Of all finished jobs that are known."""
        told = [v for v in views if _is_predicted(v) and v.get("first_p90_at") is not None]
        kept = [view["finished_at"] <= view["first_p90_at"] for view in told]
        errors = [error for view in told for error in _finish_error(view)]
        self._coverage.set(sum(kept) / len(kept) if kept else float("nan"))
        self._error.set(sum(errors) / len(errors) if errors else float("nan"))


class Metrics:
    """The service's counts."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=own), partial(Counter, registry=own)
        histogram = partial(Histogram, registry=own)
        self.jobs = gauge("laxity_jobs", "Jobs by state", ("state", "class"))
        self.stalled = gauge("laxity_jobs_stalled", "Running jobs of which no epoch ends")
        self.gpus = gauge("laxity_gpus", "GPUs of the cluster", ("state",))
        self.verdicts = counter(
            "laxity_verdicts", "Verdicts given, by their own reason", ("verdict", "reason")
        )
        self.promises = counter("laxity_promises", "Jobs that were promised")
        self.broken = counter("laxity_promises_broken", "Promises broken")
        self.outcomes = counter("laxity_outcomes", "Jobs ended", ("outcome",))
        self.cycle = histogram("laxity_cycle_seconds", "A whole cycle", buckets=SECONDS)
        self.decision = histogram("laxity_decision_seconds", "Decide and check", buckets=SECONDS)
        self.admission_wait = histogram(
            "laxity_admission_wait_seconds",
            "From submission to the first start",
            ("class",),
            buckets=WAITS,
        )
        self.failed_cycles = counter(
            "laxity_cycles_failed", "Cycles that acted on nothing", ("cause",)
        )
        self.failed_in_a_row = gauge(
            "laxity_consecutive_failed_cycles",
            "Cycles that failed since the last that went well; from 3 on /readyz says so",
        )
        self.job_errors = counter(
            "laxity_job_errors",
            "Errors about one job that were set aside while all others were served",
            ("stage",),
        )
        self.patches = counter(
            "laxity_patches",
            "Patches sent to the cluster; result is done or the status",
            ("result",),
        )
        self.leading = gauge("laxity_leading", "1 if this replica is the one that acts")
        self.blind = gauge(
            "laxity_blind", "1 while nothing is decided, as the cluster cannot be followed"
        )
        self.clock_ahead = gauge(
            "laxity_clock_ahead_seconds", "By how far its clock is ahead of the API server's"
        )
        self.reports = counter("laxity_reports", "Lines reported by workers")
        self.untold = gauge("laxity_announcements_waiting", "News not yet told")
        self.namespaces = NamespaceMetrics()
        self.loans, self.rewards = LoanMetrics(own), RewardMetrics(own)
        self.finishes = FinishMetrics(own)
        self.faults = JobFaults(lambda stage: self.job_errors.labels(stage).inc())
        self._sent: dict[str, int] = {}

    def count_changes(self, changes: Iterable[ViewChange]) -> None:
        """Count what changed since the last cycle."""
        for change in changes:
            with self.faults.isolate("metrics", change.after["id"]):
                self._count_change(change)

    def _count_change(self, change: ViewChange) -> None:
        before, after = change.before or {}, change.after
        self._count_verdict(before, after)
        if after["broken"] and not before.get("broken"):
            self.broken.inc()
            self.namespaces.count_event(after, "broken")
        if after["outcome"] and after["outcome"] != before.get("outcome"):
            self.outcomes.labels(after["outcome"]).inc()
            if after["outcome"] == "kept" and after["verdict"] == "promised":
                self.namespaces.count_event(after, "kept")
            self.finishes.observe(after)
        if after["width_history"] and not before.get("width_history"):
            waited = after["width_history"][0][0] - (after["submitted_at"] or 0.0)
            self.admission_wait.labels(_class_label(after)).observe(max(0.0, waited))

    def _count_verdict(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        if after["verdict"] in ("none", before.get("verdict")):
            return
        self.verdicts.labels(after["verdict"], after["verdict_code"]).inc()
        if after["verdict"] == "promised":
            self.promises.inc()
            self.namespaces.count_event(after, "given")

    def set_patches(self, patches: Mapping[str, int]) -> None:
        """Set the numbers of patches sent so far, by their result."""
        for result, number in patches.items():
            counter = self.patches.labels(result)
            counter.inc(number - self._sent.get(result, 0))
            self._sent[result] = number

    def set_gauges(self, state: ClusterState, views: Iterable[Mapping[str, Any]]) -> None:
        """Set the gauges to the present state."""
        self.gpus.labels("total").set(state.total_gpus)
        self.gpus.labels("free").set(state.free_gpus)
        jobs: Counts[tuple[str, str]] = Counts()
        rows = list(views)
        self.namespaces.set_gauges(state, rows)
        for view in rows:
            jobs[view["state"], _class_label(view)] += 1
        self.stalled.set(sum(view.get("stalled_since") is not None for view in rows))
        self.jobs.clear()
        for labels, number in jobs.items():
            self.jobs.labels(*labels).set(number)
        self.finishes.set_gauges(rows)

    @contextmanager
    def isolate_part(self, stage: str) -> Iterator[None]:
        """Log and count what a part of a cycle raises; the next part goes on."""
        try:
            yield
        except Exception:
            LOG.exception("%s failed in this cycle; all else goes on", stage)
            self.failed_cycles.labels("part").inc()

    def exposition(self, namespaces: frozenset[str] | None = None) -> bytes:
        """All families; of those by namespace only these namespaces, all with None."""
        return generate_latest(self.registry) + self.namespaces.exposition(namespaces)


def _is_predicted(view: Mapping[str, Any]) -> bool:
    """Whether a job has finished what was predicted of it: all of its epochs."""
    return view["state"] == "finished" and not view.get("finished_early")


def _finish_error(view: Mapping[str, Any]) -> list[float]:
    """Of a finished job, as a share of the time that it took; empty if that is not known."""
    p50_at, began = view["first_p50_at"], view["submitted_at"]
    took_s = view["finished_at"] - (view["finished_at"] if began is None else began)
    return [abs(view["finished_at"] - p50_at) / took_s] if p50_at is not None and took_s > 0 else []


def _class_label(view: Mapping[str, Any]) -> str:
    """The class as a label; whatever else stands on a Job that could not be read is "other"."""
    finished = view["class"]
    return finished if finished in CLASSES else "other"
