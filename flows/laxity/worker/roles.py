"""Which part this process has at a boundary: worker 0 leads, the others follow."""

from laxity.worker.checkpoints.training_state import TrainingState
from laxity.worker.follower import Follower
from laxity.worker.group.membership import GroupClient, GroupServer
from laxity.worker.leader import Leader
from laxity.worker.mlflow_tracking import Tracker
from laxity.worker.reports import ReportChannel

Role = Leader | Follower


def take_role(state: TrainingState, reports: ReportChannel | None, tracker: Tracker | None) -> Role:
    """The part of this worker; a training that nobody schedules leads itself."""
    environment = state.environment
    folder = environment.folder if environment.job else None
    if folder is not None and environment.index > 0:
        client = GroupClient(folder, index=environment.index, uid=environment.training)
        return Follower(state, client)
    group = None
    if folder is not None:
        group = GroupServer(folder, uid=environment.training, host=environment.host)
    return Leader(state, group=group, reports=reports, tracker=tracker)
