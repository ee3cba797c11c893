"""Random reclaims of the paper's shape against the best answers.

algorithms.md 4.4: 14 servers with at most 3 jobs each, jobs of 1 to 8 servers, 5 go back.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from laxity_scheduler.loans.server_choice import (
    LentServer,
    ServerChoice,
    choose_servers,
    count_stops,
)

SERVERS, MOST_JOBS, SERVERS_BACK = 14, 3, 5
JOB_SERVERS: Final = (1, 1, 1, 2, 2, 4, 4, 8)


def draw_servers(seed: int) -> list[LentServer]:
    """Servers of one GPU, with the jobs that have base workers there."""
    draw = Random(seed)  # noqa: S311 - no secret
    jobs_on = [set[str]() for _ in range(SERVERS)]
    for number in range(2 * SERVERS):
        room = [jobs for jobs in jobs_on if len(jobs) < MOST_JOBS]
        width = draw.choice(JOB_SERVERS)
        if len(room) >= width:
            for jobs in draw.sample(room, width):
                jobs.add(f"job{number}")
    return [
        LentServer(f"s{number:02}", 1, frozenset(jobs), 0 if jobs else 1)
        for number, jobs in enumerate(jobs_on)
    ]


def count_servers(servers: Sequence[LentServer]) -> dict[str, int]:
    """On how many servers each job runs."""
    jobs = set().union(*(server.base_jobs for server in servers))
    return {job: sum(job in server.base_jobs for server in servers) for job in jobs}


def fewest_stops(servers: Sequence[LentServer], back: int) -> int:
    """The optimum, by trying all ways. Sets of jobs are bits of integers."""
    bits = {job: 1 << place for place, job in enumerate(count_servers(servers))}
    unions = [{0}, *(set[int]() for _ in range(back))]  # by how many servers go
    for server in servers:
        jobs = sum(bits[job] for job in server.base_jobs)
        for count in range(back, 0, -1):
            unions[count] |= {jobs | stopped for stopped in unions[count - 1]}
    return min(map(int.bit_count, unions[back]))


def compare_with_optimum(
    seeds: Iterable[int], choose: ServerChoice = choose_servers
) -> tuple[int, int]:
    """Jobs stopped, and the fewest that could be, over these instances."""
    chosen = optimum = 0
    for seed in seeds:
        servers = draw_servers(seed)
        picked = choose(servers, SERVERS_BACK, server_counts=count_servers(servers))
        chosen += count_stops(picked)
        optimum += fewest_stops(servers, SERVERS_BACK)
    return chosen, optimum
