"""Which lent servers to hand back, so that the fewest jobs are preempted (Aryl / Lyra, 4.4).

A job's share on each of its servers is 1 / (number of its servers), and

    cost(server) = sum of the shares of the jobs whose base workers run there

A job that loses one server stops everywhere, so its other servers become cheaper: costs are counted
anew after each pick. Servers with flexible workers only cost nothing and go first. Where there are
few ways to choose, all of them are tried. That search, and lost work as the tie-break, are our own.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Final, Protocol

MOST_WAYS: Final = 5_000  # ways to choose servers that are all tried


@dataclass(frozen=True, slots=True)
class LentServer:
    """A lent server: its GPUs, the jobs with base workers on it, and its flexible workers."""

    id: str
    gpus: int
    base_jobs: frozenset[str] = frozenset()
    flexible_workers: int = 0


@dataclass(frozen=True, slots=True)
class StopCost:
    """What stopping jobs costs: how much they weigh, then the GPU-seconds of work lost."""

    weight: Mapping[str, float]
    lost_gpu_s: Mapping[str, float]

    def total(self, jobs: Collection[str]) -> tuple[float, float]:
        return (
            sum(self.weight.get(job, 1.0) for job in jobs),
            sum(self.lost_gpu_s.get(job, 0.0) for job in sorted(jobs)),
        )


NO_DIFFERENCE: Final = StopCost({}, {})


class ServerChoice(Protocol):
    """Whatever chooses servers as `choose_servers` does."""

    def __call__(
        self,
        servers: Sequence[LentServer],
        gpus: float,
        *,
        server_counts: Mapping[str, int],
        stop_cost: StopCost = ...,
    ) -> list[LentServer]: ...


def choose_servers(
    servers: Sequence[LentServer],
    gpus: float,
    *,
    server_counts: Mapping[str, int],
    stop_cost: StopCost = NO_DIFFERENCE,
    most_ways: int = MOST_WAYS,
) -> list[LentServer]:
    """Servers that together have so many GPUs, those to be given back first in front.

    `server_counts`: on how many servers each job runs, lent or not. All servers if they do not
    suffice. `most_ways`: up to so many ways to choose are all tried.
    """
    free = [server for server in servers if not server.base_jobs]
    picked: list[LentServer] = []
    for server in sorted(free, key=lambda server: (server.flexible_workers, server.id)):
        if gpus <= 0:
            return picked
        picked.append(server)
        gpus -= server.gpus
    busy = [server for server in servers if server.base_jobs]
    chosen = _choose_greedily(busy, gpus, server_counts, stop_cost)
    if len(chosen) < 2 or comb(len(busy), len(chosen)) > most_ways:
        return picked + chosen
    return picked + _improve(chosen, busy, gpus, stop_cost)


def _improve(
    chosen: list[LentServer], servers: Sequence[LentServer], gpus: float, stop_cost: StopCost
) -> list[LentServer]:
    """The best of all choices of as many servers; the one given, if none is better."""
    jobs = sorted(set().union(*(server.base_jobs for server in servers)))
    bits = {job: 1 << place for place, job in enumerate(jobs)}
    masks = {server.id: sum(bits[job] for job in server.base_jobs) for server in servers}
    costs: dict[int, tuple[float, float]] = {}
    best, best_cost = chosen, stop_cost.total(_jobs_on(chosen))
    for subset in combinations(servers, len(chosen)):
        mask = 0
        for server in subset:
            mask |= masks[server.id]
        if mask not in costs:
            costs[mask] = stop_cost.total([job for job in jobs if bits[job] & mask])
        if costs[mask] < best_cost and sum(server.gpus for server in subset) >= gpus:
            best, best_cost = list(subset), costs[mask]
    return best


def _choose_greedily(
    servers: Sequence[LentServer],
    gpus: float,
    server_counts: Mapping[str, int],
    stop_cost: StopCost,
) -> list[LentServer]:
    """The cheapest server, again and again; costs are counted anew after each."""
    left, picked, stopped = list(servers), [], set[str]()

    def cost(server: LentServer) -> tuple[float, float, str]:
        alive = server.base_jobs - stopped
        shares = sum(
            stop_cost.weight.get(job, 1.0) / max(1, server_counts.get(job, 1))
            for job in sorted(alive)
        )
        return shares, stop_cost.total(alive)[1], server.id

    while gpus > 0 and left:
        server = min(left, key=cost)
        left.remove(server)
        picked.append(server)
        stopped |= server.base_jobs
        gpus -= server.gpus
    return picked


def _jobs_on(servers: Sequence[LentServer]) -> set[str]:
    """The jobs that stop if these servers are given back."""
    return set().union(*(server.base_jobs for server in servers)) if servers else set()


def count_stops(servers: Sequence[LentServer]) -> int:
    """How many jobs stop if these servers are given back."""
    return len(_jobs_on(servers))
