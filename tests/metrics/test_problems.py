"""The page of problems names every reason that is one."""

import re
from pathlib import Path

from laxity_scheduler.model.reasons import TEMPLATES

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"
USUAL = """
    fits group_fits share_of_group offer_later fits_when_nodes_come start_when_nodes_come promise_moved forecast forecast_late due_first planned_growth shortest_first its_turn aged order
    grow_to_meet_deadline restart_wider grow_into_idle pods_may_not_go_there shrink_donor shrink_spare
    shrink_ordered preempt_ordered preempt_for preempt_for_aged stop_taken_back stopped_at_epoch stopped_at_step
    stopped_after_epoch holds_state stall_over link_ends link_ended reformed node_cordoned node_taken_back
    shrink_off_closed_node worker_displaced cancelled lend_idle start_on_lent grow_on_lent
    shrink_to_grow move_off_lent_nodes hand_back leave_lent_node shrink_off_lent_node
"""  # verdicts, starts, widths, stops and loans as they should be


def test_each_reason_that_is_a_problem_has_a_row_that_says_what_to_do() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|[^|]+\| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    named = [code for row in rows for code in re.findall(r"[a-z_]+", row)]
    assert sorted(named) == sorted(TEMPLATES.keys() - set(USUAL.split()))
