"""Training functions that use Prefect inside the worker, as they would in a flow."""

from prefect import get_run_logger, task

from laxity import Training, deadline_flow
from laxity.worker.training import run_of


@task
def evaluate(epoch: int) -> int:
    get_run_logger().warning("evaluated %d", epoch)
    return epoch * 10


@deadline_flow(deadline="20m", epochs=2, log_prints=True)
def train_with_habits(training: Training) -> list[int]:
    logger = get_run_logger()
    logger.warning("training begins")
    scores = []
    for epoch in training.epochs():
        print(f"epoch {epoch} is printed")  # noqa: T201 - that is the point
        scores.append(evaluate(epoch))
    return [*scores, *evaluate.map([3, 4]).result()]


@deadline_flow(epochs=1)
def train_and_log(training: Training) -> str:
    for _epoch in training.epochs():
        get_run_logger().warning("still logged")
    return "done"


@deadline_flow(epochs=2)
def train_until_followed(training: Training, by: str) -> int:
    logger = get_run_logger()
    for epoch in training.epochs():
        logger.warning("epoch %d", epoch)
        if epoch == 1:
            reports = run_of(training).reports
            assert reports is not None
            reports.wait_until(lambda now: now.flow_run == by, at_most_s=240)
        evaluate(epoch)
    return training.total_epochs
