"""The digits again, with PyTorch: DDP averages the gradients at each step, on CPUs or GPUs.

Needs the extra: `pip install '.[torch]'` in laxity's clone. A language model of one epoch would say
`training.epochs(unit=500)`, so that 500 steps are an epoch for laxity.
"""

from typing import Any

from laxity import Training, deadline_flow


def digits() -> tuple[Any, Any]:
    """1,797 images of 64 pixels from 0 to 1, and what they show, as tensors."""
    import torch
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels)


@deadline_flow(
    deadline="20m", workers=(1, 2, 4), model="torch-digits", epochs=15, epoch_estimate="5s"
)
def train_digits_torch(training: Training, hidden: int = 128, rate: float = 1e-3) -> float:
    """Train for all epochs; the accuracy on the images themselves."""
    import torch

    from laxity.pytorch import Distributed, EvenSampler

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pixels, labels = (tensor.to(device) for tensor in digits())
    layers = (torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    network = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    training.restore(network, optimizer)
    model = Distributed(training, network)
    for _epoch in training.epochs():
        for batch in torch.tensor(list(EvenSampler(training, labels))).split(64):
            loss = torch.nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = (network(pixels).argmax(dim=1) == labels).float().mean()
        training.log(loss=loss.item(), accuracy=right.item())
    return training.last("accuracy")


if __name__ == "__main__":
    print(train_digits_torch())
