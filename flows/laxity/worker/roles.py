"""Which part this process has at a boundary: worker 0 leads, the others follow."""

from laxity.worker.checkpoints.training_state import TrainingState
from laxity.worker.follower import Follower
from laxity.worker.group.membership import GroupClient, GroupServer
from laxity.worker.leader import Leader
from laxity.worker.mlflow_tracking import Tracker
from laxity.worker.reports import ReportChannel

Role = Leader | Follower


def take_role(course: TrainingState, outbox: ReportChannel | None, tracker: Tracker | None) -> Role:
    """The part of this worker; a training that nobody schedules leads itself."""
    assignment = course.assignment
    folder = assignment.folder if assignment.job else None
    if folder is not None and assignment.index > 0:
        client = GroupClient(folder, index=assignment.index, uid=assignment.training)
        return Follower(course, client)
    group = None
    if folder is not None:
        group = GroupServer(folder, uid=assignment.training, host=assignment.host)
    return Leader(course, group=group, outbox=outbox, tracker=tracker)
