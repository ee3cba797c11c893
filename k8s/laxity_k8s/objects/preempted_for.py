"""For whom a Job stops or was stopped, as it stands on the Job, where its namespace's tenants read it.

A Job of the same namespace is noted by its id, one of another namespace by its uid: `uid:...`. A
uid says nothing of the Job to somebody who may not read that Job. A stop to leave a cordoned node is
noted by the node, `node:...`: once that is uncordoned, the stop is for nobody.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.accelerator_nodes import machine_name
from laxity_scheduler.model.decision import Decision, Preempt
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import may_be_named

BY_UID: Final = "uid:"
BY_NODE: Final = "node:"


def note_beneficiary(decision: Decision, jobs: Mapping[str, Json]) -> Decision:
    """The decision as it is noted on its Job; `jobs` are all of them by id."""
    if not isinstance(decision, Preempt):
        return decision
    if decision.reason.code == "node_cordoned":
        return replace(decision, beneficiary=f"{BY_NODE}{decision.reason.fact('node')}")
    if may_be_named(decision.beneficiary, decision.job.partition("/")[0]):
        return decision
    uid = json_tree.get_in(jobs.get(decision.beneficiary), "metadata", "uid") or ""
    return replace(decision, beneficiary=f"{BY_UID}{uid}")


def read_preempted_for(text: str, ids: Mapping[str, str]) -> str:
    """The id that was noted; `ids` are those of all Jobs by uid. The text itself if it is gone."""
    return ids.get(text.removeprefix(BY_UID), text) if text.startswith(BY_UID) else text


def stopping_for(row: Job, ids: Mapping[str, str], is_cordoned: Callable[[str], bool]) -> Job:
    """The row with the id of the Job that it stops for: its own, if it leaves a cordoned node."""
    node = row.stop_for.removeprefix(BY_NODE)
    if node != row.stop_for:
        beneficiary = (
            row.id if is_cordoned(machine_name(node)) else f"the drain of {machine_name(node)}"
        )
    else:
        beneficiary = read_preempted_for(row.stop_for, ids)
    return row if beneficiary == row.stop_for else replace(row, stop_for=beneficiary)
