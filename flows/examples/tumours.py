"""A linear classifier of scikit-learn tells benign from malignant tumours, epoch by epoch.

Nothing here knows of schedulers: `partial_fit` goes once over this worker's rows, `average` takes
the mean of the coefficients over all workers. Soft: never refused, told early when it will be late.
"""

import numpy as np

from laxity import Training, deadline_flow

HELD_OUT = 119
PASSES = 20  # over the rows in each epoch: one alone takes a millisecond


@deadline_flow(
    deadline="30m",
    service_class="soft",
    workers="1..2",
    model="sgd-tumours",
    epochs=20,
    epoch_estimate="2s",
    samples=450,
)
def train_tumours(training: Training, alpha: float = 1e-4) -> float:
    """Train for all epochs; the accuracy on held-out rows."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import SGDClassifier

    rows, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))
    rows, labels = (rows[order] - rows.mean(axis=0)) / rows.std(axis=0), labels[order]
    model = SGDClassifier(loss="log_loss", alpha=alpha, random_state=0)
    model.partial_fit(rows[HELD_OUT:], labels[HELD_OUT:], classes=[0, 1])  # it has coefficients now
    training.restore(model)
    for _epoch in training.epochs():
        for _ in range(PASSES):
            model.partial_fit(*training.shard((rows[HELD_OUT:], labels[HELD_OUT:])))
        training.average(model)
        training.log(accuracy=model.score(rows[:HELD_OUT], labels[:HELD_OUT]))
    return training.last("accuracy")


if __name__ == "__main__":
    print(train_tumours())
