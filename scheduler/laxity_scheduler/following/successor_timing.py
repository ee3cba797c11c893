"""Whether to submit the successor now: by the methods of `laxity bench chains`, or by a trained model.

A model decides once there is a day of snapshots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity.human_time import format_seconds
from laxity_scheduler.chains.features import DECIDE_EVERY_S, WINDOW, Windows
from laxity_scheduler.chains.model_file import Provisioner
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.chains.provisioning import decide
from laxity_scheduler.following.chain_state import LinkRecord
from laxity_scheduler.following.queue_snapshot import SuccessorShape
from laxity_scheduler.following.queue_watch import QueueFacts, Snapshot
from laxity_scheduler.model.job import HOUR_S

SPREAD: Final = 0.1  # by how much a day of snapshots may be shorter or longer than a day


@dataclass(frozen=True, slots=True)
class LearnedTiming:
    """A model, and the user's prices."""

    provisioner: Provisioner
    prices: Prices

    @property
    def shape(self) -> SuccessorShape:
        model = self.provisioner
        cluster_nodes = int(model.trained_on["cluster_nodes"])
        return SuccessorShape(cluster_nodes, model.pair_nodes, model.limit_s)

    def should_submit(self, link: LinkRecord, snapshots: Sequence[Snapshot]) -> bool:
        """By the snapshots of the last day, of a link that runs."""
        now_at = snapshots[-1][0]
        started_at = now_at if link.started_at is None else link.started_at
        submitted_at = started_at if link.submitted_at is None else link.submitted_at
        elapsed_h = max(0.0, now_at - started_at) / HOUR_S
        windows = Windows(
            queue=np.array([[columns for _, columns in snapshots]], dtype=np.float32),
            wait_h=np.array([(started_at - submitted_at) / HOUR_S]),
            elapsed_h=np.array([elapsed_h]),
            left_h=np.array([self.provisioner.limit_s / HOUR_S - elapsed_h]),
        )
        return bool(decide(self.provisioner.model, windows, self.prices)[0])


def is_a_day(snapshots: Sequence[Snapshot]) -> bool:
    """Whether they are one every ten minutes, more or less."""
    if len(snapshots) < WINDOW:
        return False
    span_s, day_s = snapshots[-1][0] - snapshots[0][0], (WINDOW - 1) * DECIDE_EVERY_S
    return abs(span_s - day_s) <= SPREAD * day_s


def should_submit_successor(
    method: str, ends_by: float | None, facts: QueueFacts
) -> tuple[bool, str]:
    """The decision and its reason. `ends_by` is when the predecessor's time limit ends it."""
    if method == "reactive":
        return False, "the successor is submitted when this link ends"
    if ends_by is None:
        return False, "this link has no time limit: the successor is submitted when it ends"
    left = f"{_text(ends_by - facts.at)} are left of this link's time limit"
    if method == "average_now":
        if facts.mean_wait_s is None:
            return False, "no job was seen to start yet: the successor is submitted at the end"
        reason = f"the last jobs waited {_text(facts.mean_wait_s)} on average ({facts.waits_from})"
        return facts.at + facts.mean_wait_s >= ends_by, f"{reason}, and {left}"
    if facts.planned_at is None:
        return False, "Slurm plans no start: the successor is submitted at the end"
    reason = f"Slurm would start the successor in {_text(facts.planned_at - facts.at)}"
    return facts.planned_at >= ends_by, f"{reason}, and {left}"


def _text(seconds: float) -> str:
    return format_seconds(max(0.0, seconds))
