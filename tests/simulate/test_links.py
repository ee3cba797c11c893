"""A wall-clock limit in the simulator: jobs are chains of links, and each link costs a restart."""

from dataclasses import replace
from typing import Any

import pytest

from laxity_lab.simulate.run import Setting, in_links, simulate
from laxity_lab.traces.traces import Trace, TraceJob

HOUR_S = 3_600.0
RESTART_S = 30.0
LONG = TraceJob("long", submitted_at=0.0, duration_s=4 * HOUR_S, gpus=1)
SHORT = TraceJob("short", submitted_at=60.0, duration_s=HOUR_S / 2, gpus=1)
WHOLE = Setting(
    "qos", nodes=2, gpus_per_node=1, restart_s=RESTART_S, literal_cycle=True, each_epoch=True
)


def columns(setting: Setting) -> Any:
    return simulate(Trace("two", (LONG, SHORT)), replace(setting, paid_starts=True)).columns


@pytest.mark.parametrize("policy", ["qos", "fifo", "edf"])
def test_each_link_takes_another_restart_and_is_no_preemption(policy: str) -> None:
    """24 epochs of ten minutes: four fit into an hour's link for sure, which makes six links."""
    whole = replace(WHOLE, policy=policy)
    without, links = columns(whole), columns(in_links(whole, "1h"))

    later_s = (links["finished_at"] - without["finished_at"]).tolist()
    assert later_s == pytest.approx([5 * RESTART_S, 0.0])
    assert links["preemptions"].tolist() == [0.0, 0.0]


def test_a_limit_that_holds_all_epochs_changes_nothing() -> None:
    without, links = columns(WHOLE), columns(in_links(WHOLE, "9h"))
    assert links["finished_at"].tolist() == without["finished_at"].tolist()


def test_a_limit_that_is_no_duration_is_refused_by_its_option() -> None:
    with pytest.raises(ValueError, match="--wall-limit 'two days'"):
        in_links(WHOLE, "two days")
