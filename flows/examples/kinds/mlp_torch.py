"""A multi-layer perceptron in PyTorch learns handwritten digits; DDP averages the gradients.

`batch_size` is the global one: with w workers each step takes `batch_size` / w images on each.
"""

from typing import Any

from laxity import Training, deadline_flow


def digits() -> tuple[Any, Any]:
    """1,797 images of 64 pixels from 0 to 1, each four times with noise, and what they show."""
    import torch
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16.0, dtype=torch.float32).repeat(4, 1)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    return images + 0.1 * noise, torch.tensor(labels).repeat(4)


@deadline_flow(
    deadline="20m",
    workers=(1, 2),
    model="mlp-torch",
    epochs=10,
    epoch_estimate="2s",
    samples=7_188,
)
def train_mlp(training: Training, batch_size: int = 128, hidden: int = 512) -> float:
    """Train for all epochs; the accuracy on the images."""
    import torch
    from torch import nn

    from laxity.pytorch import Distributed, EvenSampler

    torch.manual_seed(0)
    images, labels = digits()
    layers = (nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    network = nn.Sequential(*layers, nn.Linear(hidden, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
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
            right = (network(images[::4]).argmax(dim=1) == labels[::4]).float().mean()
        training.log(loss=loss.item(), accuracy=right.item())
    return training.last("accuracy")


if __name__ == "__main__":
    print(train_mlp())
