"""Which lent servers go back: the fewest jobs are preempted, flexible workers first."""

import pytest

from laxity_scheduler.loans.server_choice import (
    LentServer,
    StopCost,
    choose_servers,
    count_stops,
)
from studies.loan_instances import (
    SERVERS,
    compare_with_optimum,
    count_servers,
    draw_servers,
)

MOST_OVER_OPTIMUM = 1.02


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
