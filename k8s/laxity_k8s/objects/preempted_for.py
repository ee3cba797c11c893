"""For whom a Job stops or was stopped, as it stands on the Job, where its namespace's tenants read it.

A Job of the same namespace is noted by its id, one of another namespace by its uid: `uid:...`. A
uid says nothing of the Job to somebody who may not read that Job.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from laxity_k8s import json_tree
from laxity_k8s.cluster_api import Json
from laxity_scheduler.model.decision import Decision, Preempt
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import may_be_named

BY_UID: Final = "uid:"


def noted(decision: Decision, jobs: Mapping[str, Json]) -> Decision:
    """The decision as it is noted on its Job; `jobs` are all of them by id."""
    if not isinstance(decision, Preempt):
        return decision
    if may_be_named(decision.beneficiary, decision.job.partition("/")[0]):
        return decision
    uid = json_tree.dig(jobs.get(decision.beneficiary), "metadata", "uid") or ""
    return replace(decision, beneficiary=f"{BY_UID}{uid}")


def read(text: str, ids: Mapping[str, str]) -> str:
    """The id that was noted; `ids` are those of all Jobs by uid. The text itself if it is gone."""
    return ids.get(text.removeprefix(BY_UID), text) if text.startswith(BY_UID) else text


def stopping_for(row: Job, ids: Mapping[str, str]) -> Job:
    """The row with the id of the Job that it stops for, where another namespace's uid is noted."""
    known = read(row.stop_for, ids)
    return row if known == row.stop_for else replace(row, stop_for=known)
