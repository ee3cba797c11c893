"""A net with Lightning. `# laxity` marks the lines that it needs: the callback is there by itself.

python lightning_flow.py
"""

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader, TensorDataset

import laxity.lightning  # laxity
from laxity import Training, deadline_flow


class Net(lightning.LightningModule):  # type: ignore[misc]  # has no types where it is not installed
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        rows, want = batch
        loss = torch.nn.functional.mse_loss(self.layers(rows), want)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


@deadline_flow(deadline="20m", model="tiny-net", epochs=8, epoch_estimate="2s")
def train(training: Training, patience: int = 9) -> dict[str, float]:
    lightning.seed_everything(0)
    rows = torch.randn(512, 8)
    loader = DataLoader(TensorDataset(rows, rows.sum(dim=1, keepdim=True)), batch_size=8)
    stopping = EarlyStopping("loss", patience=patience, min_delta=0.0 if patience > 1 else 9.0)
    trainer = lightning.Trainer(
        max_epochs=8, callbacks=[stopping], logger=False, enable_checkpointing=False
    )
    net = Net()
    trainer.fit(net, loader, ckpt_path=laxity.lightning.resume())  # laxity
    weights = sum(part.double().sum().item() for part in net.parameters())
    return {"steps": trainer.global_step, "weights": weights}


if __name__ == "__main__":
    print(train())
