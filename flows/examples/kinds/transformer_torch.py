"""A small transformer in PyTorch learns to sort digits; the sequences are made from a seed.

DDP averages the gradients. A language model would look the same, with `training.epochs(unit=500)`
where an epoch takes hours.
"""

from typing import Any

from laxity import Training, deadline_flow

SEQUENCES, LENGTH, DIGITS = 1_024, 10, 10


@deadline_flow(
    deadline="20m",
    workers=(1, 2),
    model="transformer-torch",
    epochs=20,
    epoch_estimate="2s",
    samples=SEQUENCES,
)
def train_transformer(training: Training, batch_size: int = 64, width: int = 32) -> float:
    """Train for all epochs; the share of places that are sorted right (guessing gives 0.1)."""
    import torch
    from torch import nn

    from laxity.pytorch import Distributed, EvenSampler

    class Sorter(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.digit = nn.Embedding(DIGITS, width)
            self.place = nn.Parameter(0.1 * torch.randn(LENGTH, width))
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
            self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.said = nn.Linear(width, DIGITS)

        def forward(self, rows: Any) -> Any:
            return self.said(self.blocks(self.digit(rows) + self.place))

    torch.manual_seed(0)
    seeded = torch.Generator().manual_seed(0)
    rows = torch.randint(0, DIGITS, (SEQUENCES, LENGTH), generator=seeded)
    wanted = rows.sort(dim=1).values
    network = Sorter()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    training.restore(network, optimizer)
    model = Distributed(training, network)
    for _epoch in training.epochs():
        size = max(1, batch_size // training.workers)
        for batch in torch.tensor(list(EvenSampler(training, rows))).split(size):
            scores = model(rows[batch]).flatten(0, 1)
            loss = nn.functional.cross_entropy(scores, wanted[batch].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right = (scores.argmax(dim=1) == wanted[batch].flatten()).float().mean()
        training.log(loss=loss.item(), accuracy=right.item())
    return training.last("accuracy")


if __name__ == "__main__":
    print(train_transformer())
