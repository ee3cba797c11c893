"""Which lent servers go back: the fewest jobs are preempted, flexible workers first."""

from itertools import combinations
from random import Random

import pytest

from laxity_scheduler.loans.server_choice import (
    LentServer,
    StopCost,
    choose_servers,
    count_stops,
)

SERVERS, MOST_JOBS, BACK = 14, 3, 5
JOB_WIDTHS = (1, 1, 1, 2, 2, 4, 4, 8)
MOST_OVER_OPTIMUM = 1.02


def draw_servers(seed: int) -> list[LentServer]:
    """The paper's shape: jobs of 1 to 8 workers on 14 servers, at most 3 jobs on each."""
    draw = Random(seed)
    on = [set[str]() for _ in range(SERVERS)]
    for number in range(2 * SERVERS):
        room = [jobs for jobs in on if len(jobs) < MOST_JOBS]
        width = draw.choice(JOB_WIDTHS)
        if len(room) >= width:
            for jobs in draw.sample(room, width):
                jobs.add(f"job{number}")
    return [
        LentServer(f"s{number:02}", 1, frozenset(jobs), 0 if jobs else 1)
        for number, jobs in enumerate(on)
    ]


def count_servers(servers: list[LentServer]) -> dict[str, int]:
    jobs = set().union(*(server.base_jobs for server in servers))
    return {job: sum(job in server.base_jobs for server in servers) for job in jobs}


def fewest_stops(servers: list[LentServer], back: int) -> int:
    """By trying all ways."""
    return min(
        len(set().union(*(server.base_jobs for server in some)))
        for some in combinations(servers, back)
    )


def compare_with_optimum(seeds: range) -> tuple[int, int]:
    chosen = optimum = 0
    for seed in seeds:
        servers = draw_servers(seed)
        picked = choose_servers(servers, BACK, server_counts=count_servers(servers))
        assert len(picked) == BACK
        chosen += count_stops(picked)
        optimum += fewest_stops(servers, BACK)
    return chosen, optimum


def test_reclaim_preempts_few_more_jobs_than_the_optimum() -> None:
    chosen, optimum = compare_with_optimum(range(40))
    assert optimum > 40
    assert chosen <= MOST_OVER_OPTIMUM * optimum


@pytest.mark.soak
def test_reclaim_preempts_few_more_jobs_than_the_optimum_on_a_thousand_instances() -> None:
    chosen, optimum = compare_with_optimum(range(1_000))
    assert chosen <= MOST_OVER_OPTIMUM * optimum


def test_costs_are_counted_anew_after_each_pick() -> None:
    """Wide's other servers cost nothing once it stops; without that, lone jobs look cheaper."""
    wide = [LentServer(f"w{number}", 8, frozenset({"wide"})) for number in range(60)]
    lone = [LentServer(f"l{number}", 8, frozenset({f"lone{number}"})) for number in range(60)]
    counts = {"wide": 60} | {f"lone{number}": 1 for number in range(60)}
    picked = choose_servers([*lone, *wide], 8 * 60, server_counts=counts)
    assert count_stops(picked) == 1


def test_servers_with_flexible_workers_only_go_first() -> None:
    servers = [
        LentServer("a", 8, frozenset({"base"})),
        LentServer("b", 8, flexible_workers=4),
        LentServer("c", 8, flexible_workers=1),
    ]
    picked = choose_servers(servers, 16, server_counts={"base": 1})
    assert [server.id for server in picked] == ["c", "b"]


def test_of_equally_many_jobs_those_that_lose_least_work_stop() -> None:
    servers = [LentServer("a", 8, frozenset({"old"})), LentServer("b", 8, frozenset({"new"}))]
    cost = StopCost({}, {"old": 900.0, "new": 10.0})
    picked = choose_servers(servers, 8, server_counts={"old": 1, "new": 1}, stop_cost=cost)
    assert [server.id for server in picked] == ["b"]


def test_all_servers_go_back_if_they_do_not_suffice() -> None:
    servers = draw_servers(3)
    assert len(choose_servers(servers, 99, server_counts=count_servers(servers))) == SERVERS


def test_nothing_is_wanted_back_from_nobody() -> None:
    assert choose_servers([], 8, server_counts={}) == []
    assert choose_servers(draw_servers(1), 0, server_counts={}) == []
