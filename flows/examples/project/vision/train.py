"""One training. The decorator, `restore` and the loop over `epochs()` are laxity's; the rest is not."""

import warnings

import mlflow
from prefect import get_run_logger
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from laxity import Training, deadline_flow

from . import settings
from .config import compose
from .data import load

warnings.simplefilter("ignore", ConvergenceWarning)  # an epoch is one call of fit


@deadline_flow(
    deadline="10m",
    epochs=compose()["epochs"],
    epoch_estimate="2s",
    name="train-vision",
    retries=2,
    log_prints=True,
)
def train_vision(training: Training, model: str = "small", seed: int = 7) -> float:
    """Train one of the configured models; its accuracy on unseen images."""
    config = compose(model=model)
    get_run_logger().info("stage %s: %s", settings.STAGE, config)
    images, labels, unseen, expected = load(config["data"])
    mlflow.sklearn.autolog(log_models=False, log_post_training_metrics=False)
    network = MLPClassifier(
        config["model"]["hidden"],
        learning_rate_init=config["model"]["lr"],
        random_state=seed,
        max_iter=1,
        warm_start=True,
    )
    training.restore(network)
    with mlflow.start_run():
        mlflow.set_tag("stage", settings.STAGE)
        for epoch in training.epochs():
            network.fit(images, labels)
            training.log(accuracy=network.score(unseen, expected))
            print(f"epoch {epoch} done")
    return training.last("accuracy")


if __name__ == "__main__":
    train_vision()
