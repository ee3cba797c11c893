"""A small convolutional network in PyTorch learns handwritten digits; DDP averages the gradients."""

from typing import Any

from laxity import Training, deadline_flow


def digits() -> tuple[Any, Any]:
    """1,797 images of 8 x 8 pixels from 0 to 1, and what they show."""
    import torch
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16.0, dtype=torch.float32)
    return images.reshape(-1, 1, 8, 8), torch.tensor(labels)


@deadline_flow(
    deadline="20m",
    workers=(1, 2),
    model="cnn-torch",
    epochs=10,
    epoch_estimate="2s",
    samples=1_797,
)
def train_cnn(training: Training, batch_size: int = 128, channels: int = 16) -> float:
    """Train for all epochs; the accuracy on the images."""
    import torch
    from torch import nn

    from laxity.pytorch import Distributed, EvenSampler

    torch.manual_seed(0)
    images, labels = digits()
    network = nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * channels, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    training.restore(network, optimizer)
    model = Distributed(training, network)
    for _epoch in training.epochs():
        size = max(1, batch_size // training.workers)
        for batch in torch.tensor(list(EvenSampler(training, labels))).split(size):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = (network(images).argmax(dim=1) == labels).float().mean()
        training.log(loss=loss.item(), accuracy=right.item())
    return training.last("accuracy")


if __name__ == "__main__":
    print(train_cnn())
