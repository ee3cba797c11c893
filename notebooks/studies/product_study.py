"""A cluster with GPUs of two products: deadlines met and promises broken, apart and taken for one.

Arrivals, durations, widths and deadlines are those of an ITP trace. Each job is one of the models that
were measured on both products, drawn by its number; its recorded duration is what it takes on the
slower one at the width asked for. Half of the nodes have each product. The framework decides on them
apart (`apart`), or does not know of products and believes the times of one kind: those of the slower
(`as slow`), of the faster (`as fast`), or between (`as one`), where P90 allows for either. What it
believes then is corrected by a job's own epochs, as it is everywhere. Who does not know of products
may put one job on both: it is as fast as the slower.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from laxity_lab.simulate.replay import literal
from laxity_lab.simulate.run import Setting, nodes_of, open_world
from laxity_lab.traces.cases import Case
from laxity_lab.traces.throughput_tables import Tables, load_tables
from laxity_lab.traces.traces import Trace
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_lab.world.trace_truths import epochs_of, names_of
from laxity_profiler.estimate import NO_PROGRESS, Estimate, Predictor, Progress, Workload
from laxity_profiler.model.products import ProductFactor, ProductFactors
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies.registry import find
from laxity_scheduler.qos.product_choice import workload_on
from laxity_scheduler.simulated.beliefs import Z90
from laxity_scheduler.simulated.change_costs import Costs
from laxity_scheduler.simulated.ground_truth import GroundTruth
from studies.datasets import Datasets
from studies.study_rows import FIGURES, Row, Trial, figures_row, labels_of
from studies.windows import Window

PAIRS: Final = {  # slower and faster by the middle of their models
    "Gavel": ("tables/gavel_phys_k80", "tables/gavel_phys_p100"),
    "Sia": ("tables/sia_azure", "tables/sia_rtx"),
}
TRACE: Final = "195job"
JOBS: Final = 60  # consecutive ones, from a place that the seed draws
NODES: Final = (2, 4)
GPUS_PER_NODE: Final = 4
SLOW, FAST = "slow", "fast"
MADE, A100 = "made", "elasticflow/throughputs_A100"


@dataclass(frozen=True, slots=True)
class ProductBelief:
    """A job as it is believed to be, and how unsure its time is on each product, in logarithms."""

    job: GroundTruth
    spread: Mapping[str, float]


class BelievingPredictor(NoisyPredictor):
    """Believes what it is told of each job until its own epochs say otherwise.

    After k of them, k / (1 + k) of the logarithm of the error is known.
    """

    def __init__(self, beliefs: Sequence[ProductBelief], costs: Costs) -> None:
        super().__init__([belief.job for belief in beliefs], costs)
        self._beliefs = {belief.job.workload.model: belief for belief in beliefs}

    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        return self._believe(workload, NO_PROGRESS, workers, 1)

    def remaining(self, workload: Workload, progress: Progress, workers: int) -> Estimate:
        left = max(0, workload.epochs - progress.epochs_done)
        return self._believe(workload, progress, workers, left)

    def _believe(
        self, workload: Workload, progress: Progress, workers: int, epochs: int
    ) -> Estimate:
        belief = self._beliefs[workload.model]
        epoch_s = belief.job.times_on(workload.gpu_type).get(workers)
        if epoch_s is None:
            return super().epoch_time(workload, workers)
        measured = belief.job.times_on(progress.gpu_type)
        errors = [
            math.log(seconds / measured[width])
            for seconds, width in zip(progress.epoch_s, progress.widths, strict=True)
        ]
        k = len(errors)
        middle_s = epochs * epoch_s * math.exp(sum(errors) / (1 + k))
        spread = belief.spread.get(workload.gpu_type, 0.0) / (1 + k)
        wide = math.exp(Z90 * spread)
        mean_s = middle_s * math.exp(spread * spread / 2.0)
        return Estimate(middle_s / wide, middle_s, mean_s, middle_s * wide, "history", k)


@dataclass(frozen=True, slots=True)
class DrawnJob:
    """A job, and how the faster product compares with the slower by all models but its own."""

    truth: GroundTruth
    by_others: ProductFactor


def believe_products(jobs: Sequence[DrawnJob]) -> list[ProductBelief]:
    """Each job has runs of its model on both products."""
    return [ProductBelief(job.truth, {}) for job in jobs]


def believe_factor(jobs: Sequence[DrawnJob]) -> list[ProductBelief]:
    """Each job has runs of its model on the slower product; all others ran on both."""
    beliefs = []
    for job in jobs:
        slow = job.truth.epoch_s_on[SLOW]
        fast = {width: seconds * job.by_others.factor for width, seconds in slow.items()}
        spread = math.asinh(Z90 * job.by_others.error) / Z90
        believed = replace(job.truth, epoch_s_on={SLOW: slow, FAST: fast})
        beliefs.append(ProductBelief(believed, {FAST: spread}))
    return beliefs


def believe_one_kind(share: float, jobs: Sequence[DrawnJob]) -> list[ProductBelief]:
    """One time on all GPUs: so far in logarithms from that on the slower to that on the faster."""
    beliefs = []
    for job in (drawn.truth for drawn in jobs):
        slow, fast = job.epoch_s_on[SLOW], job.epoch_s_on[FAST]
        logs = {width: math.log(fast[width] / slow[width]) for width in job.widths}
        times = {width: slow[width] * math.exp(share * logs[width]) for width in job.widths}
        apart = abs(logs[job.widths[0]]) * min(share, 1.0 - share)
        beliefs.append(ProductBelief(replace(job, epoch_s=times, epoch_s_on={}), {"": apart}))
    return beliefs


BELIEFS: Final[Mapping[str, Callable[[Sequence[DrawnJob]], list[ProductBelief]]]] = {
    "apart": believe_products,
    "by factor": believe_factor,
    "as slow": partial(believe_one_kind, 0.0),
    "as one": partial(believe_one_kind, 0.5),
    "as fast": partial(believe_one_kind, 1.0),
}
SEES_PRODUCTS: Final = ("apart", "by factor")


def decide_on_one_kind(policy: Policy, state: ClusterState, predictor: Predictor) -> Plan:
    """The policy, which is not told of products."""
    jobs = [
        replace(
            job,
            workload=workload_on(job.workload, ""),
            progress=replace(job.progress, gpu_type=""),
        )
        for job in state.jobs
    ]
    nodes = [replace(node, gpu_type="") for node in state.nodes]
    return policy(replace(state, jobs=tuple(jobs), nodes=tuple(nodes)), predictor)


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each pair of products, each size of the cluster, each seed, each way to decide."""
    if not datasets.having([TRACE]):
        return []
    pairs = {MADE: (A100, A100)} if datasets.samples else PAIRS
    return [
        Trial(
            labels_of(setting, part=pair, trace=TRACE) | {"variant": variant},
            partial(_compute_row, case, setting, folders, variant),
        )
        for pair, (slow, fast) in pairs.items()
        for folders in ((datasets.folder / slow, datasets.folder / fast),)
        for nodes in NODES
        for seed in seeds
        for case in (Window(datasets.source(TRACE), JOBS, seed),)
        for setting in (_setting(nodes, seed),)
        for variant in BELIEFS
    ]


def _setting(nodes: int, seed: int) -> Setting:
    return Setting(
        "qos",
        nodes,
        GPUS_PER_NODE,
        cost_model="live",
        paid_starts=True,
        literal_cycle=True,
        seed=seed,
    )


def _compute_row(case: Case, setting: Setting, folders: tuple[Path, Path], variant: str) -> Row:
    tables: tuple[Tables, Tables] = load_tables(folders[0]), load_tables(folders[1])
    if folders[0] == folders[1]:
        tables = slow_down(tables[0]), tables[1]
    drawn = draw_jobs(case.load(), tables, setting.seed)
    names = [name for name, _ in nodes_of(setting.nodes, setting.gpus_per_node, pooled=False)]
    products = {name: (SLOW, FAST)[number % 2] for number, name in enumerate(names)}
    policy = find(setting.policy).policy()
    run = literal(
        setting.policy,
        "",
        world=open_world(setting, [job.truth for job in drawn], products=products),
        policy=policy if variant in SEES_PRODUCTS else partial(decide_on_one_kind, policy),
        predictor=BelievingPredictor(BELIEFS[variant](drawn), setting.costs),
    )
    return figures_row(run, FIGURES)


def draw_jobs(trace: Trace, tables: tuple[Tables, Tables], seed: int) -> list[DrawnJob]:
    """The jobs of a trace, each as a model and batch size that both products were measured with."""
    slow, fast = tables
    widths_of = {
        kind: tuple([width for width in slow[kind].levels if width in fast[kind].gpus])
        for kind in sorted(slow.keys() & fast.keys())
    }
    kinds = [kind for kind, widths in widths_of.items() if widths]
    draws = np.random.default_rng(seed).integers(len(kinds), size=len(trace.jobs)).tolist()
    compared = compare_products(tables)
    jobs = []
    for number, (job, name, draw) in enumerate(
        zip(trace.jobs, names_of(trace), draws, strict=True)
    ):
        kind, epochs = kinds[draw], epochs_of(job.duration_s)
        widths = widths_of[kind]
        asked = max([w for w in widths if w <= job.gpus], default=widths[0])
        work = job.duration_s / epochs * slow[kind].speed(asked)
        took = {
            product: {width: work / table[kind].speed(width) for width in widths}
            for product, table in ((SLOW, slow), (FAST, fast))
        }
        truth = GroundTruth(
            id=name,
            number=number,
            submitted_at=job.submitted_at,
            epochs=epochs,
            widths=widths,
            epoch_s=took[SLOW],
            deadline_at=job.deadline_at,
            service_class=job.service_class,
            ideal_s=job.duration_s,
            asked_gpus=job.gpus,
            workload=Workload(model=name, epochs=epochs, batch_size=kind[1]),
            epoch_s_on=took,
        )
        jobs.append(DrawnJob(truth, compared[kind[0]]))
    return jobs


def slow_down(tables: Tables) -> Tables:
    """Three to five times as slow, by model: where no second product was measured."""
    models = sorted({model for model, _ in tables})
    return {
        (model, batch): replace(
            table,
            iterations_per_s=tuple(
                [speed / (3 + models.index(model) % 3) for speed in table.iterations_per_s]
            ),
        )
        for (model, batch), table in tables.items()
    }


def compare_products(tables: tuple[Tables, Tables]) -> Mapping[str, ProductFactor]:
    """By model, the time on the faster product over that on the slower, by all others."""
    times: dict[str, dict[str, dict[Hashable, float]]] = {}
    for product, table in zip((SLOW, FAST), tables, strict=True):
        for (model, batch), row in table.items():
            places = times.setdefault(model, {}).setdefault(product, {})
            places.update({(batch, w): 1.0 / row.speed(w) for w in row.gpus})
    return {
        model: ProductFactors(times[other] for other in times if other != model).between(SLOW, FAST)
        for model in times
    }
