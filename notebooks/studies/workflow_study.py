"""Workflows under one deadline: laxity's moving shares against what people do by hand.

Jobs arrive as in ITP's traces. Every second one is a workflow instead: two to four steps in series,
of one to three trainings side by side, which together do the work of the job. The deadline of the
whole is submit + U(1.2, 3) x the longest way through it at the widths asked for, without waiting;
the jobs beside have those of the trace. All widths of the throughput tables are allowed.

- `shares`: the group as laxity's service has it, with one verdict
- `split`: each training has its own deadline, the time of the whole split by predicted time along the
  longest way through it, all slack spent. It is submitted when the steps before it have ended
- `whole`: likewise, and each has the deadline of the whole

By hand, a workflow ends when one of its trainings is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from laxity_lab.simulate.report import LATE_TOLERANCE_S
from laxity_lab.simulate.run import Setting, run_cycles, truths_of
from laxity_lab.simulate.trace_groups import TraceGroups, groups_of
from laxity_lab.traces.cases import Case
from laxity_lab.traces.traces import Trace, TraceJob
from laxity_lab.world.outcome import Run
from laxity_profiler.estimate import NO_PROGRESS, Predictor
from laxity_scheduler.groups.composition import StepPart, compose, divide_time
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.simulated.ground_truth import GroundTruth
from studies.datasets import Datasets
from studies.study_rows import Row, Trial, labels_of
from studies.windows import Window

METHODS: Final = ("shares", "split", "whole")
ERRORS: Final = (0.0, 0.2)
NODES, GPUS_PER_NODE = 2, 8
JOBS: Final = {"195job": 40, "10": 40}  # of a window; every second one is a workflow
SAMPLE_JOBS: Final = 8


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each way to share a deadline, exact and with errors, on the same jobs of each seed."""
    return [
        Trial(
            labels_of(setting, part="workflows", trace=trace) | {"variant": method},
            partial(workflow_row, Window(source, jobs, seed), setting, method),
        )
        for trace in datasets.having(list(JOBS))
        for source in (datasets.source(trace),)
        for jobs in (SAMPLE_JOBS if datasets.samples else JOBS[trace],)
        for seed in seeds
        for error in ERRORS
        for setting in (
            Setting("qos", NODES, GPUS_PER_NODE, cost_model="live", error=error, seed=seed),
        )
        for method in METHODS
    ]


def workflow_row(case: Case, setting: Setting, method: str) -> Row:
    """What became of the workflows, and of the jobs beside them."""
    trace = with_workflows(case.load(), setting.seed)
    jobs = truths_of(trace, setting)
    groups = TraceGroups if method == "shares" else partial(ByHand, splits=method == "split")
    return _figures(jobs, run_cycles(trace.name, setting, jobs, groups=groups))


def with_workflows(trace: Trace, seed: int) -> Trace:
    """The trace, where every second job is a workflow that does its work in several trainings."""
    rng = np.random.default_rng(seed)
    parts = [
        (job,) if number % 2 else _split_job(job, rng) for number, job in enumerate(trace.jobs)
    ]
    return replace(trace, jobs=tuple([job for jobs in parts for job in jobs]))


def _split_job(job: TraceJob, rng: np.random.Generator) -> list[TraceJob]:
    counts = rng.integers(1, 4, size=rng.integers(2, 5))
    shares = rng.dirichlet(np.full(len(counts), 3.0))
    parts, way_s = [], 0.0
    for step, (count, share) in enumerate(zip(counts, shares, strict=True)):
        of_step = share * rng.dirichlet(np.full(count, 20.0))
        way_s += float(of_step.max()) * job.duration_s
        parts += [
            replace(
                job,
                id=f"{job.id}-{step}-{number}",
                duration_s=job.duration_s * float(part),
                iterations=job.iterations * float(part),
                group=str(job.id),
                step=f"s{step}",
                after=(f"s{step - 1}",) if step else (),
            )
            for number, part in enumerate(of_step)
        ]
    due_at = job.submitted_at + float(rng.uniform(1.2, 3.0)) * way_s
    return [replace(part, deadline_at=due_at) for part in parts]


class ByHand(TraceGroups):
    """The same workflows, each training a job of its own that is submitted at its turn."""

    def __init__(
        self, jobs: Sequence[GroundTruth], predictor: Predictor, policy: str, *, splits: bool
    ) -> None:
        super().__init__(jobs, predictor, policy)
        self._splits = splits
        self._due_at: dict[str, float] = {}  # of each training

    def apply(self, state: ClusterState, predictor: Predictor) -> tuple[ClusterState, list[str]]:
        """Trainings whose turn has come, each under its own deadline."""
        self.note_ended(state)
        hidden: set[str] = set()
        ended: list[str] = []
        for name in {self.group_of(job) for job in self.live}:
            records = self.records(self.groups[name], state).values()
            held = [job.id for record in records for job in record.held]
            hidden |= set(held)
            if any(record.failed for record in records):
                ended += held
            self._due_at |= {} if name in self._judged else self._find_due(name, state.now)
            self._judged.add(name)
        rows = [
            replace(job, deadline_at=self._due_at[job.id]) if job.id in self._due_at else job
            for job in state.jobs
            if job.id not in hidden
        ]
        return replace(state, jobs=tuple(rows)), ended

    def _find_due(self, name: str, now: float) -> dict[str, float]:
        group, members = self.groups[name], self.members[name]
        if not self._splits:
            return {job.id: group.deadline_at for job in members}
        parts = []
        for step in group.steps:
            took = [self._asked_s(job) for job in members if job.step == step.name]
            p50_s, p90_s = max(took)
            parts.append(StepPart(step.name, p50_s, p90_s, step.after, step.count, step.count))
        shares = divide_time(compose(parts), group.deadline_at - now)
        return {job.id: now + shares[job.step].due_s for job in members}

    def _asked_s(self, job: GroundTruth) -> tuple[float, float]:
        """P50 and P90 at the width asked for, or at the widest below."""
        width = max((w for w in job.widths if w <= job.asked_gpus), default=job.widths[0])
        takes = self._predictor.remaining(job.workload, NO_PROGRESS, width)
        return takes.p50_s, takes.p90_s


def _figures(jobs: Sequence[GroundTruth], run: Run) -> Row:
    ended, due = run.column("finished_at"), run.column("deadline_at") + LATE_TOLERANCE_S
    in_time, started = ended <= due, np.isfinite(run.column("first_start_at"))
    members = [[job.number for job in group] for group in groups_of(jobs).values()]
    kept = [rows for rows in members if in_time[rows].all()]
    lost = [rows for rows in members if started[rows].any() and not in_time[rows].all()]
    beside = np.array([not job.group for job in jobs])
    promised = beside & np.isfinite(run.column("promised_at"))
    gpu_s = run.column("gpu_s")
    return {
        "workflows": len(members),
        "workflows_kept": len(kept),
        "workflows_started_in_vain": len(lost),
        "gpu_hours_in_vain": float(sum(gpu_s[rows].sum() for rows in lost)) / 3600.0,
        "others": int(beside.sum()),
        "others_met": int((beside & in_time).sum()),
        "other_promises": int(promised.sum()),
        "other_promises_broken": int((promised & ~in_time).sum()),
        "deadline_met_ratio": len(kept) / max(1, len(members)),
    }
