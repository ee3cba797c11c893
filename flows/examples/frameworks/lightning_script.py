"""A net trained with Lightning, as any such script is: nothing in it knows laxity.

laxity run --deadline 10m -- python lightning_script.py
"""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class LineFit(lightning.LightningModule):  # type: ignore[misc]  # has no types where it is not installed
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        rows, want = batch
        loss = torch.nn.functional.mse_loss(self.layer(rows), want)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    rows = torch.randn(2_000, 8)
    loader = DataLoader(TensorDataset(rows, rows.sum(dim=1, keepdim=True)), batch_size=8)
    lightning.Trainer(max_epochs=8, logger=False, enable_checkpointing=False).fit(LineFit(), loader)
