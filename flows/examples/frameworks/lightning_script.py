"""A net trained with Lightning, as any such script is: nothing in it knows laxity.

    laxity run --deadline 10m -- python lightning_script.py
    laxity run --deadline 10m --resumes -- python lightning_script.py --output_dir out

With a folder it saves each epoch, and begins at the last one that was saved.
"""

import argparse

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
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
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir")
    parser.add_argument("--max_epochs", type=int, default=8)
    options = parser.parse_args()
    lightning.seed_everything(0)
    rows = torch.randn(2_000, 8)
    loader = DataLoader(TensorDataset(rows, rows.sum(dim=1, keepdim=True)), batch_size=8)
    folder = options.output_dir
    trainer = lightning.Trainer(
        max_epochs=options.max_epochs,
        logger=False,
        callbacks=[ModelCheckpoint(folder, save_last=True)] if folder else [],
        enable_checkpointing=bool(folder),
    )
    trainer.fit(LineFit(), loader, ckpt_path="last" if folder else None)
