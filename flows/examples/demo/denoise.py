"""Learn to draw digits again from noisy copies: an autoencoder in plain NumPy, without a deadline."""

from examples.demo.arguments import parse_arguments
from examples.demo.models import Denoiser, load_digits, make_lesson, record_execution
from laxity import Training, deadline_flow


@deadline_flow(workers=1, model="demo-denoiser", epochs=20, epoch_estimate="2s")
def train_denoiser(training: Training, passes: int = 4, hidden: int = 96) -> float:
    """Train for the declared epochs of `passes` times over the data; the mean squared error."""
    images, _ = make_lesson(load_digits())
    model = Denoiser(hidden)
    training.restore(model)
    for epoch in training.epochs():
        shard = training.shard(images)
        training.count_bytes(passes * shard.nbytes)
        training.log(error=model.train(shard, passes=passes, seed=epoch))
        training.average(model)
        record_execution(training, epoch)
    return training.last("error")


if __name__ == "__main__":
    options, parameters = parse_arguments()
    train_denoiser.with_qos(**options)(**parameters)
