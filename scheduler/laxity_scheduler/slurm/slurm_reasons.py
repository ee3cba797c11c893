"""Why a job waits on Slurm, and what to do where waiting alone does not help."""

import re
from typing import Final

LIMITED: Final = "(?:Assoc|QOS)"
ADVICE: Final = (
    (
        "PartitionTimeLimit",
        "its time limit is above the partition's; lower --time: it cannot start",
    ),
    ("PartitionNodeLimit|PartitionConfig", "the partition does not allow what it asks for"),
    ("PartitionDown|PartitionInactive", "its partition is down"),
    (
        "JobHeldUser",
        "it is held; let it start with: scontrol release {job_id} (--hold in a script holds each link)",
    ),
    (
        "BeginTime",
        "its start time has not come; a job that was queued again waits some minutes first",
    ),
    ("NonZeroExitCode", "Slurm queues it again after this exit code"),
    ("JobHeldAdmin", "an administrator holds it"),
    (
        "launch failed requeued held",
        "its launch failed, and Slurm holds it since; let it start with: scontrol release {job_id}",
    ),
    (
        "job requeued in held state",
        "it was queued again and is held; it starts after: scontrol release {job_id}",
    ),
    ("ReservationDeleted", "its reservation was deleted: it cannot start"),
    ("Reservation", "its reservation has not begun"),
    ("ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"),
    ("BadConstraints", "no node has what it asks for"),
    ("DependencyNeverSatisfied", "what it depends on has failed: it cannot start"),
    ("InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed", "it may not run there"),
    ("Job's account not permitted", "its account may not use the partition: it cannot start"),
    ("Job's QOS not permitted", "its QOS may not use the partition: it cannot start"),
    (
        f"{LIMITED}MaxWallDurationPerJob",
        "its time limit is above that of your account or QOS; lower --time: it cannot start",
    ),
    (
        rf"{LIMITED}Max\w+Per(?:Job|Node)",
        "it asks for more than your account or QOS allows one job: it cannot start",
    ),
    ("QOSMin", "it asks for less than its QOS demands: it cannot start"),
    (
        rf"{LIMITED}Grp(?!\w*RunMinutes)\w*(?:Minutes|Wall)",
        "your account or QOS has used up its budget of time; an administrator can renew it",
    ),
    (
        "Assoc|QOS|Max",
        "a limit of your account or QOS is reached; jobs that end make room, unless it asks for more",
    ),
)


def describe_wait(reason: str, job_id: str) -> str:
    """What Slurm's reason means for this job, with the reason; empty where Slurm gives none."""
    reason = reason.strip().replace("_", " ")
    if reason in ("", "None", "(null)"):
        return ""
    advice = next((words for codes, words in ADVICE if re.match(codes, reason)), "")
    return f"{advice.format(job_id=job_id)} ({reason})" if advice else reason
