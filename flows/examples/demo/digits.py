"""Learn to read handwritten digits, under a deadline: a small network in plain NumPy."""

from examples.demo.arguments import parse_arguments
from examples.demo.models import Classifier, load_digits, make_lesson, record_execution
from laxity import Training, deadline_flow


@deadline_flow(deadline="10m", workers=(1, 2), model="demo-digits", epochs=20)
def train_digits(training: Training, passes: int = 4, hidden: int = 128) -> float:
    """Train for the declared epochs of `passes` times over the data; the accuracy on unseen images."""
    images, unseen = make_lesson(load_digits())
    model = Classifier(hidden)
    training.restore(model)
    for epoch in training.epochs():
        shard = training.shard(images)
        training.count_bytes(passes * shard.nbytes)
        loss = model.train(shard, passes=passes, seed=epoch)
        training.average(model)
        training.log(loss=loss, accuracy=model.accuracy(unseen))
        record_execution(training, epoch)
    return training.last("accuracy")


if __name__ == "__main__":
    options, parameters = parse_arguments()
    train_digits.with_qos(**options)(**parameters)
