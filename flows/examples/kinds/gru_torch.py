"""A recurrent network (GRU) in PyTorch learns to add: two marked numbers in a sequence.

The adding problem of Hochreiter and Schmidhuber (1997), made from a seed. DDP averages the
gradients.
"""

from typing import Any

from laxity import Training, deadline_flow

SEQUENCES, LENGTH = 4_096, 16


def sums() -> tuple[Any, Any]:
    """Sequences of (number, mark), shape (n, LENGTH, 2), and the sum of the two marked numbers."""
    import torch

    seeded = torch.Generator().manual_seed(0)
    numbers = torch.rand(SEQUENCES, LENGTH, generator=seeded)
    half = LENGTH // 2
    first = torch.randint(0, half, (SEQUENCES,), generator=seeded)
    second = torch.randint(half, LENGTH, (SEQUENCES,), generator=seeded)
    rows = torch.arange(SEQUENCES)
    marks = torch.zeros(SEQUENCES, LENGTH)
    marks[rows, first] = marks[rows, second] = 1.0
    wanted = numbers[rows, first] + numbers[rows, second]
    return torch.stack([numbers, marks], dim=2), wanted


@deadline_flow(
    deadline="20m",
    workers=(1, 2),
    model="gru-torch",
    epochs=10,
    epoch_estimate="2s",
    samples=SEQUENCES,
)
def train_gru(training: Training, batch_size: int = 128, hidden: int = 32) -> float:
    """Train for all epochs; the mean squared error of the last batch (guessing gives 0.17)."""
    import torch
    from torch import nn

    from laxity.pytorch import Distributed, EvenSampler

    class Adder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.memory = nn.GRU(2, hidden, batch_first=True)
            self.said = nn.Linear(hidden, 1)

        def forward(self, rows: Any) -> Any:
            states, _ = self.memory(rows)
            return self.said(states[:, -1]).squeeze(1)

    torch.manual_seed(0)
    rows, wanted = sums()
    network = Adder()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
    training.restore(network, optimizer)
    model = Distributed(training, network)
    for _epoch in training.epochs():
        size = max(1, batch_size // training.workers)
        for batch in torch.tensor(list(EvenSampler(training, wanted))).split(size):
            loss = nn.functional.mse_loss(model(rows[batch]), wanted[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        training.log(loss=loss.item())
    return training.last("loss")


if __name__ == "__main__":
    print(train_gru())
