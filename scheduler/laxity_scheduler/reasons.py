"""Why something was decided: a code for machines, figures, and the sentence that people read.

A Reason is built in hot loops, so the words are made only when somebody reads them. Every code of
the product stands in TEMPLATES; a code that is not there is a programming error.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

Fact = str | int | float | None
NAMING: Final = ("holders", "beneficiary")  # facts that are ids of jobs, separated by commas

TEMPLATES: Final[Mapping[str, str]] = {
    # verdicts
    "fits": "P90 finish {p90_in} from now, {slack} before the deadline, on {workers} worker(s)",
    "deadline_before_fastest_finish": (
        "even alone on the cluster at its best width ({workers} worker(s)) the P90 finish is "
        "{p90_in} from now, {late} after the deadline"
    ),
    "capacity_promised_to_others": (
        "{needed_gpus} GPU(s) are needed in time, but promised jobs leave {free_gpus}; "
        "the P90 finish would be {late} after the deadline"
    ),
    "capacity_budget_spent": (
        "namespace {namespace} has {left_gpu_h:.2f} promised GPU-hours left of {budget_gpu_h:.2f}; "
        "this job needs {needed_gpu_h:.2f}"
    ),
    "does_not_fit_any_node": (
        "a worker needs {gpus_per_worker} GPU(s) on one node; the largest node has {largest_gpus}"
    ),
    "does_not_fit_cluster": (
        "the least width is {workers} worker(s) of {gpus_per_worker} GPU(s), each on one node; "
        "{slots} fit on the empty cluster"
    ),
    "no_eligible_node": (
        "no node is eligible: the pods ask for {asks}; nodes with GPUs: {nodes}; {shut_out}"
    ),
    "does_not_fit_eligible_nodes": (
        "the least width is {workers} worker(s) of {gpus_per_worker} GPU(s), each on one node; "
        "{slots} fit on the nodes it may use, {nodes}, empty: the pods ask for {asks}; {shut_out}"
    ),
    "counted_as_one_pool": (
        "policy {policy} plans all GPUs as one pool and promises nothing on some nodes only: "
        "the pods ask for {asks}"
    ),
    "unknown_model_needs_profiling": (
        "model {model!r} has no history and the job gives no epoch_estimate: "
        "nothing can be promised on"
    ),
    "deadline_in_the_past": "the deadline was {ago} ago when the job was submitted",
    "invalid": "{problem}",
    "promise_in_danger": (
        "the P90 finish is now {p90_in} from now, {late} after the promised deadline, "
        "on {workers} worker(s)"
    ),
    "promise_moved": "the P90 finish moved by {moved} to {p90_in} from now, still in time",
    "promise_broken": "the promised deadline was {late} ago; it runs on as soft",
    "forecast": "P90 finish {p90_in} from now",
    "forecast_late": "P90 finish {p90_in} from now, {late} after the deadline",
    "late": "its deadline is {late} ago: it runs on as soft",
    "missed_and_stopped": "its deadline is {late} ago and it says on_miss=stop",
    # starting and waiting
    "due_first": "least slack of those that fit: {slack} left, {workers} worker(s) meet the deadline",
    "planned_growth": "starts on {workers} worker(s) now and grows later as planned",
    "shortest_first": "shortest of those that fit: {remaining} left",
    "aged": "waited {waited}, more than the ageing limit of {limit}",
    "order": "next in the order of policy {policy}",
    "no_free_gpus": "{needed_gpus} GPU(s) needed on nodes with {gpus_per_worker} free each, {free_gpus} free",
    "held_for_promises": "the free GPUs are reserved for promised jobs: {holders}",
    "waits_for_preempted": "waits for {holders} to reach the end of its epoch",
    "hopeless": "cannot meet its deadline any more: runs after the jobs that can",
    # changing
    "grow_to_meet_deadline": "P90 finish was {late} after the deadline on {from_workers} worker(s)",
    "restart_wider": (
        "its nodes are full and the P90 finish is {late} after the deadline: "
        "stops to start on {workers} workers elsewhere"
    ),
    "grow_into_idle": "GPUs are idle: {from_workers} -> {workers} workers save {saved}",
    "pods_may_not_go_there": (
        "{wanted} workers would need {nodes}, where its pods may not go before it is started anew: "
        "{workers} workers"
    ),
    "shrink_donor": "gives {gpus} GPU(s) to {beneficiary}, still in time itself",
    "shrink_spare": "{from_workers} -> {workers} workers still meet the deadline; others wait",
    "shrink_ordered": (
        "{from_workers} -> {workers} workers: policy {policy} gives the other GPUs to others"
    ),
    "preempt_ordered": "policy {policy} gives its {gpus} GPU(s) to {beneficiary}",
    "preempt_for": "{beneficiary} needs {gpus} GPU(s) to keep its deadline; this job can wait",
    "preempt_for_aged": "{beneficiary} has waited longer than the ageing limit",
    "stop_taken_back": "runs on: {beneficiary} no longer needs its GPUs",
    "stopped_at_epoch": "saved at the end of epoch {epoch}: stops for {beneficiary}",
    "reformed": "the workers re-formed at {workers}: the others can go",
    "stop_overdue": "asked to stop {ago} ago and has not reached an epoch's end: stopped now",
    "pods_do_not_fit": "only {running} of {workers} pods ran in the time that they have for it{why}{then}",
    "workers_fail": "only {running} of {workers} workers run: {died}{then}",
    "workers_keep_failing": "failed {times} times without finishing an epoch: {died}",
    "workers_cannot_start": "{times} starts in a row failed: {why}",
    "node_lost": "node {node} is gone",
    "pinned": "changed by hand: counted, not touched, until annotation laxity.dev/pin is removed",
    "cancelled": "cancelled by its user",
    "loan": "{reason}",
    "reclaim": "{reason}",
    "successor": "{reason}",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A code of TEMPLATES with its figures. `facts` are (name, value) pairs; durations end in _s."""

    code: str
    facts: tuple[tuple[str, Fact], ...] = ()

    @property
    def text(self) -> str:
        words = {name.removesuffix("_s"): _shown(name, value) for name, value in self.facts}
        return TEMPLATES[self.code].format_map(_Missing(words))

    def within(self, namespace: str) -> "Reason":
        """The reason as this namespace is told it: jobs of others are counted and not named."""
        is_naming = any(name in NAMING for name, _ in self.facts)
        return _within(self, namespace) if is_naming else self

    def fact(self, name: str) -> Fact:
        return dict(self.facts).get(name)


def reason(code: str, /, **facts: Fact) -> Reason:
    """`reason("due_first", slack_s=90.0, workers=2)`: a fact named x_s is shown as {x}, in words."""
    if code not in TEMPLATES:
        message = f"unknown reason code {code!r}: add it to TEMPLATES"
        raise KeyError(message)
    return Reason(code, tuple(facts.items()))


@lru_cache(maxsize=4096)  # one reason is told to many that wait
def _within(why: Reason, namespace: str) -> Reason:
    def is_own(job: str) -> bool:
        return "/" not in job or job.startswith(f"{namespace}/")

    facts = tuple(
        (name, ", ".join(named(str(value).split(", "), is_own)) if name in NAMING else value)
        for name, value in why.facts
    )
    return Reason(why.code, facts)


def named(jobs: Iterable[str], may: Callable[[str], bool]) -> list[str]:
    """The ids that somebody may see; the others as one entry that counts them."""
    ids = list(jobs)
    seen = [job for job in ids if may(job)]
    hidden = len(ids) - len(seen)
    if hidden:
        seen.append("a job of another namespace" if hidden == 1 else f"{hidden} jobs of others")
    return seen


def duration(seconds: float) -> str:
    """Seconds as people say them: 45s, 12m30s, 3h05m, 2d04h."""
    if seconds != seconds or seconds in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
        return "forever" if seconds == float("inf") else "unknown"
    sign, whole = ("-" if seconds < 0 else ""), round(abs(seconds))
    if whole < 60:
        return f"{sign}{abs(seconds):.3g}s" if whole < 10 else f"{sign}{whole}s"
    minutes, secs = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{sign}{days}d{hours_left:02d}h"
    if hours:
        return f"{sign}{hours}h{minutes_left:02d}m"
    return f"{sign}{minutes}m{secs:02d}s"


def _shown(name: str, value: Fact) -> Fact:
    if name.endswith("_s") and isinstance(value, int | float):
        return duration(float(value))
    return value


class _Missing(dict[str, Fact]):
    def __missing__(self, key: str) -> str:
        return "?"
