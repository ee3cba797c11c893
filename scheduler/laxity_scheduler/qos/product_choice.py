"""On which product of GPU each job is planned, where a cluster has several.

A training runs on one product at a time. A running job is on that of its nodes, a promised one on that
of its promise, and one for whom others were stopped on that of their GPUs. For the rest it is chosen
here, before anything else is decided:

- a hard job that asks: the slowest product on which it would be promised, so that the faster ones stay
  free for who needs them; with no promise on any, the one where it would end first
- any other job that waits: where it would end first, at P50, behind those that run there and those
  that were put there before it (list scheduling)

A job is then planned as one that may use the nodes of its product alone, and predicted on it. With
nodes of one product a snapshot is left as it is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from laxity_profiler.estimate import Predictor, Workload
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import CLOSED_POOLS, ClusterState, NodeSet
from laxity_scheduler.model.job import FOREVER, Job, Promise, Verdict
from laxity_scheduler.plan import Policy
from laxity_scheduler.promising.promise import Judge

Kept = tuple[Job, str, Job]  # a row as observed, the name of its set there, and as it is planned
SHUT_OUT: Final = "its GPUs are of another product"


def on_one_product(policy: Policy) -> Policy:
    """The policy, for which each job is on one product."""
    return lambda state, predictor: policy(choose_products(state, predictor), predictor)


def choose_products(state: ClusterState, predictor: Predictor) -> ClusterState:
    """The snapshot in which each job has its product; itself where there is one product at most."""
    if len({node.gpu_type for node in state.nodes} - {""}) < 2:
        return state
    chooser = _Chooser(_Table.of(state), state, predictor)
    return chooser.choose()


def product_of(job: Job, products: Mapping[str, str], options: Sequence[str]) -> str | None:
    """The one that it is bound to, `products` by node: where it runs, else where it is promised.

    None where it is free to choose.
    """
    there = {products.get(node, "") for node in job.nodes}
    if job.workers and len(there) == 1:
        return there.pop()
    if isinstance(job.verdict, Promise) and job.verdict.gpu_type in options:
        return job.verdict.gpu_type
    return None


@lru_cache(maxsize=4096)
def workload_on(workload: Workload, product: str) -> Workload:
    """The workload on this product; equal ones are one object."""
    return replace(workload, gpu_type=product)


@dataclass
class _Table:
    """The sets of nodes by product, as jobs need them."""

    products: Mapping[str, str]  # of each node
    open: frozenset[str]  # nodes that take workers
    sets: dict[str, NodeSet]
    _options: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: ClusterState) -> "_Table":
        usable = [node.id for node in state.nodes if node.pool not in CLOSED_POOLS]
        products = {node.id: node.gpu_type for node in state.nodes}
        return cls(products, frozenset(usable), dict(state.sets or {}))

    def options(self, eligible: str) -> tuple[str, ...]:
        """The products among the nodes of a set."""
        if eligible not in self._options:
            products = {self.products[node] for node in self._nodes(eligible) & self.open}
            self._options[eligible] = tuple(sorted(products))
        return self._options[eligible]

    def set_on(self, eligible: str, product: str) -> str:
        """The part of a set that is of this product, by its name."""
        name = f"{eligible}, on {product}" if eligible else f"on {product}"
        if name not in self.sets:
            nodes = self._nodes(eligible)
            mine = frozenset([node for node in nodes if self.products.get(node) == product])
            known = self.sets.get(eligible)
            others = f"{len(nodes) - len(mine)} nodes: {SHUT_OUT}"
            text = "; ".join(filter(None, [others, known.shut_out if known else ""]))
            self.sets[name] = NodeSet(mine, text)
        return name

    def _nodes(self, eligible: str) -> frozenset[str]:
        return self.sets[eligible].nodes if eligible in self.sets else frozenset(self.products)


class _Chooser:
    def __init__(self, table: _Table, state: ClusterState, predictor: Predictor) -> None:
        self._table, self._state, self._predictor = table, state, predictor
        self._last: Mapping[tuple[str, str], Kept] = state.memory.get("products", {})
        self._kept: dict[tuple[str, str], Kept] = {}  # by job and product
        state.memory["products"] = self._kept

    def choose(self) -> ClusterState:
        rows: dict[str, Job] = {}
        free: list[Job] = []
        kept = _find_kept(self._state, self._table.products)
        for job in self._state.jobs:
            options = self._table.options(job.eligible)
            product = product_of(job, self._table.products, options)
            if product is None and kept.get(job.id) in options:
                product = kept[job.id]
            if len(options) > 1 and product is not None:
                rows[job.id] = self._on(job, product)
            elif len(options) > 1 and not job.workers and (job.asked or not job.refused):
                free.append(job)
        for job in free:  # before any snapshot is made with them
            self._variants(job)
        asking = [job for job in free if _asks(job)]
        others = [job for job in free if not _asks(job)]
        rows |= self._ask_judge(asking, self._with(rows))
        rows |= self._earliest_ends(others, self._with(rows))
        return self._with(rows)

    def _with(self, rows: Mapping[str, Job]) -> ClusterState:
        jobs = tuple([rows.get(job.id, job) for job in self._state.jobs])
        return replace(self._state, jobs=jobs, sets=dict(self._table.sets))

    def _on(self, job: Job, product: str) -> Job:
        """The row on this product; the same object as long as it is the same."""
        name = self._table.set_on(job.eligible, product)
        key = job.id, product
        kept = self._kept.get(key) or self._last.get(key)
        if kept is None or kept[0] is not job or kept[1] != name:
            workload = workload_on(job.workload, product)
            kept = job, name, replace(job, eligible=name, workload=workload)
        self._kept[key] = kept
        return kept[2]

    def _variants(self, job: Job) -> list[Job]:
        """The job on each product that it may use, the slowest first."""
        rows = [self._on(job, product) for product in self._table.options(job.eligible)]
        widths = job.widths[0]
        times = [self._predictor.epoch_time(row.workload, widths).p50_s for row in rows]
        order = sorted(
            zip(times, range(len(rows)), strict=True), key=lambda pair: (-pair[0], pair[1])
        )
        return [rows[number] for _, number in order]

    def _ask_judge(self, asking: Iterable[Job], state: ClusterState) -> dict[str, Job]:
        """Each of these in turn: whom the judge promises a place has it before the next is asked."""
        chosen: dict[str, Job] = {}
        for job in asking:
            row, verdict = self._first_promised(job, state)
            chosen[job.id] = row
            if isinstance(verdict, Promise):
                row = replace(row, verdict=verdict, asked=False)
            state = state.with_job(row)
        return chosen

    def _first_promised(self, job: Job, state: ClusterState) -> tuple[Job, Verdict]:
        judged: list[tuple[Job, Verdict]] = []
        for row in self._variants(job):
            there = state.with_job(row)
            verdict = Judge(there, Forecasts(there, self._predictor)).verdict(row)
            if isinstance(verdict, Promise):
                return row, verdict
            judged.append((row, verdict))
        return min(reversed(judged), key=lambda pair: pair[1].p90_at)

    def _earliest_ends(self, jobs: Iterable[Job], state: ClusterState) -> dict[str, Job]:
        """Each where it ends first behind what is there; who came first is put first."""
        forecasts = Forecasts(state, self._predictor)
        queues = _Queues(state, forecasts, self._table.products)
        chosen: dict[str, Job] = {}
        for job in jobs:
            ends = [
                (queues.wait_s(row) + forecasts.trajectory_s(row, "p50"), number, row)
                for number, row in enumerate(reversed(self._variants(job)))
            ]
            row = chosen[job.id] = min(ends, key=lambda end: end[:2])[2]
            queues.put(row, row.workload.gpu_type)
        return chosen


class _Queues:
    """What each product has to do, in GPU-seconds, and its GPUs that nobody has yet."""

    def __init__(
        self, state: ClusterState, forecasts: Forecasts, products: Mapping[str, str]
    ) -> None:
        self._forecasts = forecasts
        self._gpus: Counter[str] = Counter()
        self._free: Counter[str] = Counter()
        self._gpu_s: defaultdict[str, float] = defaultdict(float)
        for node in state.nodes:
            if node.pool not in CLOSED_POOLS:
                self._gpus[node.gpu_type] += node.gpus
                self._free[node.gpu_type] += max(0, node.free_gpus)
        for job, product in _placed(state, products):
            self.put(job, product)

    def wait_s(self, job: Job) -> float:
        """How long it waits there, about: not at all if GPUs are free, else until all before it is done."""
        product = job.workload.gpu_type
        if self._free[product] >= job.widths[0] * job.gpus_per_worker:
            return 0.0
        return self._gpu_s[product] / max(1, self._gpus[product])

    def put(self, job: Job, product: str) -> None:
        """It runs there, or will."""
        gpus = (job.workers or job.widths[0]) * job.gpus_per_worker
        rest_s = self._forecasts.trajectory_s(job, "p50")
        self._gpu_s[product] += gpus * rest_s if rest_s < FOREVER else 0.0
        if not job.workers:
            self._free[product] -= min(gpus, self._free[product])


def _placed(state: ClusterState, products: Mapping[str, str]) -> Iterator[tuple[Job, str]]:
    """Jobs that run, or are promised GPUs, and on which product."""
    for job in state.jobs:
        if job.workers and job.nodes:
            yield job, products.get(job.nodes[0], "")
        elif not job.workers and job.promise is not None:
            yield job, job.workload.gpu_type


def _find_kept(state: ClusterState, products: Mapping[str, str]) -> Mapping[str, str]:
    """By job, the product of GPUs that others were stopped for: it takes these."""
    kept = {job.stop_for: products.get(job.nodes[0], "") for job in state.running if job.nodes}
    return kept | {hold.job: products.get(hold.node, "") for hold in state.holds}


def _asks(job: Job) -> bool:
    """Whether the judge is asked about it now."""
    return job.service_class == "hard" and job.asked and job.deadline_at < FOREVER
