"""Other rules for parts of loans and scaling, to be put in place of laxity's own (algorithms.md 4.8).

RECLAIMS   which lent servers go back
WIDTHS     who gets the GPUs that base demand leaves (phase 2)
PLACES     which nodes base and flexible workers go to first
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from laxity_scheduler.allocation.purse import Purse
from laxity_scheduler.allocation.surplus import (
    WidthRule,
    widen_by_gain,
    widen_by_least_share,
    widen_by_time_saved,
)
from laxity_scheduler.capacity.pools import WorkerOrder, is_training_short, keep_apart
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.loans.server_choice import (
    NO_DIFFERENCE,
    LentServer,
    ServerChoice,
    StopCost,
    choose_servers,
)
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.policies.aryl import widths_by_knapsack

ALL_WAYS: Final = 100_000  # to choose among 18 servers


def _take_in_order(servers: Sequence[LentServer], gpus: float) -> list[LentServer]:
    """The first servers that together have so many GPUs."""
    picked: list[LentServer] = []
    for server in servers:
        if gpus <= 0:
            break
        picked.append(server)
        gpus -= server.gpus
    return picked


def choose_in_order_of(key: Callable[[LentServer], Any]) -> ServerChoice:
    """By a fixed order, whatever else the jobs on a server run on."""

    def choose(
        servers: Sequence[LentServer],
        gpus: float,
        *,
        server_counts: Mapping[str, int],
        stop_cost: StopCost = NO_DIFFERENCE,
    ) -> list[LentServer]:
        del server_counts, stop_cost
        return _take_in_order(sorted(servers, key=key), gpus)

    return choose


def draw_place(server: LentServer) -> float:
    """Drawn once, so that a server that is being left is chosen again."""
    return Random(f"order of {server.id}").random()  # noqa: S311


def count_base_jobs(server: LentServer) -> tuple[int, str]:
    return len(server.base_jobs), server.id


def choose_by_lost_work(
    servers: Sequence[LentServer],
    gpus: float,
    *,
    server_counts: Mapping[str, int],
    stop_cost: StopCost = NO_DIFFERENCE,
) -> list[LentServer]:
    """A job counts as the GPU-seconds that its stop costs (cost x overhead), not as one."""
    weight = {
        job: lost_gpu_s * stop_cost.weight.get(job, 1.0)
        for job, lost_gpu_s in stop_cost.lost_gpu_s.items()
    }
    return choose_servers(
        servers,
        gpus,
        server_counts=server_counts,
        stop_cost=StopCost(weight, {}),
        most_ways=0,
    )


def keep_least_widths(jobs: Sequence[Job], purse: Purse, _forecasts: Forecasts) -> dict[str, int]:
    """No phase 2: nobody grows."""
    return widen_by_gain(jobs, purse, lambda _job, _workers, _more: 0.0)


def mix_on_lent(state: ClusterState) -> WorkerOrder:
    """As `keep_apart`, but lent nodes are all alike."""
    lent, training = state.node_pools.lent, state.node_pools.names_by_pool["training"]
    base = (lent, training) if is_training_short(state, lent) else (training, lent)
    return WorkerOrder(base, (lent, training))


RECLAIMS: Final[Mapping[str, ServerChoice]] = {
    "random": choose_in_order_of(draw_place),
    "fewest jobs": choose_in_order_of(count_base_jobs),
    "cost": partial(choose_servers, most_ways=0),
    "cost x overhead": choose_by_lost_work,
    "exact": partial(choose_servers, most_ways=ALL_WAYS),
}
WIDTHS: Final[Mapping[str, WidthRule]] = {
    "none": keep_least_widths,
    "equal share": widen_by_least_share,
    "greedy": widen_by_time_saved,
    "knapsack": widths_by_knapsack,
}
PLACES: Final[Mapping[str, Callable[[ClusterState], WorkerOrder]]] = {
    "apart": keep_apart,
    "together": mix_on_lent,
}
