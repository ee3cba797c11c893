"""Why something was decided: a code for machines, figures, and a sentence for people.

Reasons are built in hot loops, so their text is made only when it is read. TEMPLATES has every code of
the product; an unknown code is a programming error.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite
from typing import Final

from laxity.human_time import count_noun, format_seconds
from laxity.instants import FIRST_AT, calendar_instant, format_instant

Fact = str | int | float | None
NAMING: Final = ("holders", "beneficiary")  # facts that are ids of jobs, separated by commas

TEMPLATES: Final[Mapping[str, str]] = {
    # verdicts
    "fits": "P90 finish {p90}, {slack} before the deadline, on {workers:worker}",
    "fits_when_nodes_come": (
        "P90 finish {p90}, {slack} before the deadline, on {workers:worker}, if nodes of pool {pool} come "
        "within {within}; they usually come in {usually}"
    ),
    "deadline_before_fastest_finish": (
        "even alone on the cluster, on {workers:worker}, its P90 finish is {p90}, "
        "{late} after the deadline"
    ),
    "deadline_before_last_link": (
        "even alone on the cluster, on {workers:worker}, its P90 finish is {p90}, {late} after the "
        "deadline; {restarts} of that are stops and starts between links of {limit}, {restart} each "
        "(P90, {basis}): give links more time, or train it as soft once, and the cost is measured"
    ),
    "share_of_group": "{takes} of the {left} that group {group} has left; {part}",
    "group_fits": (
        "P90 finish of the whole {p90}, {slack} before the deadline; the longest way is {way}"
    ),
    "group_too_slow": (
        "its P90 finish is {p90}, {late} after the deadline: step {step} takes the most, {takes} of it"
    ),
    "group_ended": "its group was refused, or one of its steps has failed",
    "waits_for_steps": "it waits for {steps}",
    "group_forming": "its group {group} is judged once all of its Jobs are there",
    "group_not_running": "its group {group} is not planned yet: {why}",
    "group_refused": "its group {group} is refused: {why}",
    "group_unknown": "nothing is known about {what}: this run is predicted, and the next is promised",
    "group_not_kept": (
        "P90 finish of the whole {p90}; no promise, since policy {policy} keeps no GPUs for coming steps"
    ),
    "offer_later": "deadline {due}",
    "group_does_not_fit": (
        "step {step} needs {needed_gpus:GPU} at a time, and the cluster has {free_gpus} for it"
    ),
    "capacity_promised_to_others": (
        "it needs {needed_gpus:GPU} in time; promised jobs and pods of others leave {free_gpus}: "
        "the P90 finish would be {late} after the deadline"
    ),
    "capacity_freed_too_late": (
        "stopping {holders} and starting takes {making_room} at P90: {late} too late"
    ),
    "quota_promised_to_others": (
        "it needs {needed_gpus:GPU} in time; promised jobs and pods of others leave {free_gpus} of {quota}: "
        "the P90 finish would be {late} after the deadline"
    ),
    "capacity_budget_spent": (
        "namespace {namespace} has {left_gpu_h:.2f} promised GPU-hours left of {budget_gpu_h:.2f}; "
        "this job needs {needed_gpu_h:.2f}"
    ),
    "does_not_fit_any_node": (
        "a worker needs {gpus_per_worker:GPU} on one node; the largest node has {largest_gpus}"
    ),
    "does_not_fit_cluster": (
        "it needs at least {workers:worker} of {gpus_per_worker:GPU}, each on one node; "
        "{slots} fit on the empty cluster"
    ),
    "requests_do_not_fit": (
        "each worker requests {needs} of one node, beside {gpus_per_worker:GPU}; of {workers:worker} "
        "{slots} fit on the nodes that it may use when these are empty"
    ),
    "no_eligible_node": (
        "no node is eligible: the pods ask for {asks}; nodes with GPUs: {nodes}; {shut_out}"
    ),
    "does_not_fit_eligible_nodes": (
        "it needs at least {workers:worker} of {gpus_per_worker:GPU}, each on one node; "
        "{slots} fit on the nodes it may use, {nodes}, empty: the pods ask for {asks}; {shut_out}"
    ),
    "counted_as_one_pool": (
        "policy {policy} plans all GPUs as one pool and promises nothing on some nodes only: "
        "the pods ask for {asks}"
    ),
    "unknown_model_needs_profiling": (
        "nothing is known about model {model!r}: it has no history, and the job gives no "
        "epoch_estimate (--estimate 2h)"
    ),
    "wall_limit_below_epoch": (
        "the wall-clock limit, {limit}, is shorter than one epoch, {epoch} (P90) on {workers:worker}: "
        "allow more time, or count smaller epochs"
    ),
    "active_deadline_too_short": (
        "Kubernetes ends it {limit} after its start (activeDeadlineSeconds), and it takes {needed} "
        "from its start (P90) on {workers:worker}: raise activeDeadlineSeconds, or let it do less"
    ),
    "deadline_in_the_past": "the deadline, {due}, had passed when a verdict was asked for",
    "invalid": "{problem}",
    "namespace_limits": "{problem}",
    "promise_in_danger": (
        "the P90 finish is now {p90}, {late} after the promised deadline, on {workers:worker}"
    ),
    "gpus_taken_by_others": (
        "pods that laxity does not manage hold {gpus} of {of:GPU} on the nodes that it may use: "
        "the P90 finish is now {p90}, {late} after the promised deadline"
    ),
    "promise_moved": "the P90 finish is now {p90}, {moved}; still in time",
    "no_try_in_time": (
        "its starts have failed; it is tried again {try}, after the promised deadline {due}: the "
        "promise will be broken"
    ),
    "promise_broken": "the promised deadline, {due}, has passed: the job runs on as soft",
    "forecast": "P90 finish {p90}",
    "forecast_late": "P90 finish {p90}, {late} after the deadline",
    "missed_and_stopped": "the deadline, {due}, has passed and the job says on_miss=stop",
    # starting and waiting
    "due_first": "it starts: least slack ({slack}) of the jobs that fit, on {workers:worker}",
    "start_when_nodes_come": (
        "it starts: its pods wait for nodes of pool {pool}, which usually come in {usually}, and within "
        "{within} at the latest"
    ),
    "planned_growth": "it starts on {workers:worker} and grows later, as planned",
    "shortest_first": "it starts: least time left ({remaining}) of the jobs that fit",
    "its_turn": "it starts: its turn among jobs that take about as long ({remaining})",
    "aged": "it starts after waiting {waited}, longer than the limit of {limit}",
    "order": "next in the order of policy {policy}",
    "no_free_gpus": "it needs {needed_gpus:GPU} ({gpus_per_worker} per worker); {free_gpus} free",
    "idle_gpus_unschedulable": (
        "it needs {needed_gpus:GPU} ({gpus_per_worker} per worker); {free_gpus} free. Nodes whose idle GPUs "
        "take no pod now: {troubles}"
    ),
    "node_requests_full": (
        "{workers:worker} with {needs} each beside {gpus_per_worker:GPU} need room on nodes; "
        "{slots} would fit now"
    ),
    "pods_cannot_end": (
        "{pods}. It starts again when they are gone; no start can be foreseen. If that node is gone for "
        "good, delete its Node object"
    ),
    "quota_used_up": "it waits until pods of its namespace leave more of {quota}",
    "held_for_promises": "the free GPUs are reserved for promised jobs: {holders}",
    "waits_for_preempted": "it waits until {holders} reaches the end of its epoch",
    "hopeless": "it cannot meet its deadline any more: it runs after the jobs that can",
    # changing
    "grow_to_meet_deadline": (
        "the P90 finish on {from_workers:worker} was {late} after the deadline"
    ),
    "restart_wider": (
        "its nodes are full and the P90 finish is {late} after the deadline: "
        "it stops, to start on {workers:worker} elsewhere"
    ),
    "grow_into_idle": "GPUs are idle: {from_workers} -> {workers:worker} saves {saved}",
    "pods_may_not_go_there": (
        "{wanted:worker} would need {nodes}, where its pods may not go before it is started anew: "
        "{workers:worker}"
    ),
    "shrink_donor": "it gives {gpus:GPU} to {beneficiary} and is still in time",
    "shrink_spare": (
        "{from_workers} -> {workers:worker} still meets the deadline, and other jobs wait"
    ),
    "shrink_ordered": (
        "{from_workers} -> {workers:worker}: policy {policy} gives the other GPUs to others"
    ),
    "preempt_ordered": "policy {policy} gives its {gpus:GPU} to {beneficiary}",
    "preempt_for": "{beneficiary} needs {gpus:GPU} to keep its deadline, and this job can wait",
    "preempt_stateless": (
        "{beneficiary} needs {gpus:GPU} to keep its deadline, and no other job can make way: this one "
        "holds no state, so its {epochs:epoch} are lost"
    ),
    "preempt_for_aged": "{beneficiary} has waited longer than the ageing limit",
    "stop_taken_back": "it runs on: {beneficiary} no longer needs its GPUs",
    "stopped_at_epoch": "saved at the end of epoch {epoch}: it stops for {beneficiary}",
    "stopped_at_step": "saved inside epoch {epoch}: it stops for {beneficiary}",
    "stopped_after_epoch": "it stops for {beneficiary} after epoch {epoch}, and goes on from there",
    "stopped_stateless": (
        "it stops for {beneficiary} at the end of epoch {epoch} and holds no state: it begins at epoch 1 "
        "again"
    ),
    "no_progress": "no progress was reported: later runs are predicted by its run time",
    "holds_no_state": (
        "nothing was given to training.restore() or --resumes: a stop loses all its epochs. It is stopped only where "
        "a promise needs its GPUs and no other job can make way"
    ),
    "holds_state": "it holds state now: a stop loses no finished epoch",
    "stalled": "no epoch has ended for {waited}, usually {usual}",
    "stall_over": "an epoch has ended again, after {waited}",
    "link_ends": (
        "its start may run for {limit}, until {ends}: it saves at the end of this epoch and goes on in "
        "its next link"
    ),
    "link_ended": "saved at the end of epoch {epoch}: its next link, of at most {limit}, goes on",
    "link_cut": (
        "its start may run for {limit} and no epoch has ended in time: stopped now; the next link "
        "goes on from the last checkpoint"
    ),
    "link_lost": (
        "its start may run for {limit} and it holds no state: stopped now; its {epochs:epoch} are lost "
        "and the next link begins at epoch 1"
    ),
    "links_begin_anew": (
        "{times} links of {limit} have ended and each began at epoch 1: nothing was given to "
        "training.restore(). Give it the model and the optimizer, or allow time for all epochs"
    ),
    "epoch_over_wall_limit": (
        "{times} links of {limit} have ended and none of them finished an epoch: an epoch takes longer "
        "than the wall-clock limit. Allow more time, or count smaller epochs"
    ),
    "reformed": "training goes on with {workers:worker}: the others can go",
    "stop_overdue": (
        "it was asked to stop at {asked} and has not reached the end of an epoch: stopped now"
    ),
    "pods_do_not_fit": "only {running} of {workers:pod} ran in the time that they have for it{why}{then}",
    "workers_fail": "only {running} of {workers:worker} run: {died}{then}",
    "worker_failed": "failed: {died}",
    "worker_failed_again": "failed twice in the same epoch with the same error: {died}",
    "workers_keep_failing": "failed {times} times without finishing an epoch: {died}",
    "workers_fail_anew": (
        "failed {times} times and got no further than epoch {epoch}, from epoch 1 each time, as nothing "
        "was given to training.restore(): {died}"
    ),
    "pods_keep_failing": "failed {times} times in a row: {died}",
    "workers_cannot_start": "{times} starts in a row failed: {why}",
    "node_lost": "node {node} is gone",
    "node_cordoned": (
        "node {node} is cordoned: it stops at the end of its epoch and starts on other nodes"
    ),
    "node_taken_back": (
        "node {node} was labelled inference while it was lent: the job stops at the end of its epoch "
        "and starts on other nodes"
    ),
    "shrink_off_closed_node": (
        "node {node} takes no workers any more: {from_workers} -> {workers:worker} at the end of the "
        "epoch, none is stopped"
    ),
    "worker_displaced": "{why}; {then}",
    "pinned": "changed by hand: counted, not touched, until annotation laxity.dev/pin is removed",
    "cancelled": "cancelled by its user",
    "lend_idle": (
        "inference needs at most {needed_gpus} of its {pool_gpus:GPU} until {horizon}: "
        "{nodes:node} idle and lent"
    ),
    "start_on_lent": "it starts on lent nodes, which inference may want back",
    "grow_on_lent": (
        "lent nodes are idle: {from_workers} -> {workers:worker}; no promise counts on them, and the "
        "job shrinks when inference wants them back"
    ),
    "shrink_to_grow": (
        "training nodes have room for {workers:worker}: it leaves its lent nodes at the end of its "
        "epoch, {from_workers} now, and grows there"
    ),
    "move_off_lent_nodes": (
        "nodes that stay have room for it: it stops at the end of its epoch and starts there"
    ),
    "hand_back": "inference wants {gpus:GPU} back by {due}: {nodes:node} empty, handed back",
    "leave_lent_node": "its node {node} goes back to inference, which wants {gpus:GPU} by {due}",
    "shrink_off_lent_node": (
        "node {node} goes back to inference: {from_workers} -> {workers:worker}, none is stopped"
    ),
}
ENDLESS: Final = {  # of these, where no end can be foreseen
    "forecast": "it runs when there is room; no end can be foreseen yet",
    "promise_in_danger": "no end can be foreseen: no GPUs are planned for it now",
    "gpus_taken_by_others": (
        "pods that laxity does not manage hold {gpus} of {of:GPU} on the nodes that it may use: "
        "no end can be foreseen"
    ),
}
OF_PRODUCT: Final = " of {product}"
FINISHING: Final = "; from its last epoch to its finish it takes {finishing} (P90)"
UNKNOWN_TIME: Final = "an unknown time"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code of TEMPLATES with its figures. `facts` are (name, value) pairs.

    The names of durations end in _s, those of instants in _at: text shows instants in UTC, so that
    it stays true however long it stands somewhere.
    """

    code: str
    facts: tuple[tuple[str, Fact], ...] = ()

    @property
    def text(self) -> str:
        return _format_text(self)

    def within(self, namespace: str) -> "Reason":
        """The reason for readers of this namespace: jobs of others are counted, not named."""
        is_naming = any(name in NAMING for name, _ in self.facts)
        return _hide_foreign_jobs(self, namespace) if is_naming else self

    def fact(self, name: str) -> Fact:
        return dict(self.facts).get(name)


def reason(code: str, /, **facts: Fact) -> Reason:
    """`reason("due_first", slack_s=90.0, workers=2)`: x_s or x_at is shown as {x}, in words."""
    if code not in TEMPLATES:
        raise KeyError(f"unknown reason code {code!r}: add it to TEMPLATES")
    return Reason(code, tuple(facts.items()))


@lru_cache(maxsize=4096)  # many waiting jobs share one reason
def _format_text(cause: Reason) -> str:
    values = {_placeholder_name(name): _format_fact(name, value) for name, value in cause.facts}
    template = TEMPLATES[cause.code]
    if float("inf") in (cause.fact("late_s"), cause.fact("p90_at")):
        template = ENDLESS.get(cause.code, template)
    if cause.fact("product"):
        template += OF_PRODUCT
    if cause.fact("finishing_s"):
        template += FINISHING
    return template.format_map(_UnknownFacts(values))


@lru_cache(maxsize=4096)
def _hide_foreign_jobs(cause: Reason, namespace: str) -> Reason:
    may = partial(may_be_named, namespace=namespace)
    facts = tuple(
        (name, ", ".join(visible_names(str(value).split(", "), may)) if name in NAMING else value)
        for name, value in cause.facts
    )
    return Reason(cause.code, facts)


def may_be_named(job: str, namespace: str) -> bool:
    """Whether readers of this namespace may see this: the id of a job there, or no job's id."""
    return "/" not in job or job.startswith(f"{namespace}/")


def visible_names(jobs: Iterable[str], may: Callable[[str], bool]) -> list[str]:
    """The ids that `may` accepts; all others as one entry that counts them."""
    ids = list(jobs)
    visible = [job for job in ids if may(job)]
    hidden = len(ids) - len(visible)
    if hidden:
        visible.append("a job of another namespace" if hidden == 1 else f"{hidden} jobs of others")
    return visible


def format_duration(seconds: float) -> str:
    """Seconds as text: 45s, 12m30s, 3h05m, 2d04h."""
    if not isfinite(seconds):
        return UNKNOWN_TIME
    if 0.0 < abs(seconds) < 0.05:
        return "less than 0.1s"
    shown_s = seconds if abs(seconds) < 9.5 else round(seconds)
    return format_seconds(shown_s).replace(".0s", "s")


def format_utc(instant: float) -> str:
    """An instant as 2026-11-25T06:00:00Z."""
    at_utc = calendar_instant(instant, first_at=FIRST_AT)
    return f"at {UNKNOWN_TIME}" if at_utc is None else format_instant(at_utc, "seconds")


def _placeholder_name(name: str) -> str:
    return name.removesuffix("_s").removesuffix("_at")


def _format_fact(name: str, value: Fact) -> object:
    if name == "moved_s" and isinstance(value, int | float):
        return f"{format_duration(abs(value))} {'later' if value > 0 else 'earlier'}"
    if name.endswith("_at") and isinstance(value, int | float):
        return format_utc(float(value))
    if name.endswith("_s") and isinstance(value, int | float):
        return format_duration(float(value))
    return _Count(value) if isinstance(value, int) else value


class _Count(int):
    """`{workers:worker}` is "1 worker" or "2 workers"."""

    def __format__(self, noun: str) -> str:
        return count_noun(int(self), noun) if noun.isalpha() else str(int(self))


class _Unknown(str):
    """A missing figure, in any format."""

    __slots__ = ()

    def __format__(self, _: str) -> str:
        return str(self)


class _UnknownFacts(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return _Unknown("?")
